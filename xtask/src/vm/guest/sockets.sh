# The kernel's sockets behind a virtual network card. Sourced by init.sh.

network_up() {
    reach="--resp 10.0.2.15:6479 --http 10.0.2.15:6480 --insecure-no-password"
    ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
}
