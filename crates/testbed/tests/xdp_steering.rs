//! Lifecycle of the steering program: attach, pin, detach, and what happens when its process is killed.

mod common;

use common::*;
use landfall_testbed::Host;
use landfall_xdp::{AttachMode, Interface, Mode, Rules, Socket, Steering, XdpError};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PORT: u16 = 7007;
/// Environment variables for the child process of a test: the interface, and the path of the pin or nothing.
const CHILD_INTERFACE: &str = "LANDFALL_TEST_INTERFACE";
const CHILD_PIN: &str = "LANDFALL_TEST_PIN";

fn attach(host: &Host, interface: &Interface, pin: Option<&Path>) -> Result<Steering, XdpError> {
    host.enter(|| Steering::attach(interface, &ports(XDP_ADDRESS, &[PORT]), 1, AttachMode::Auto, pin))
}

/// True if a datagram from the peer's kernel to the steered port reaches the kernel.
fn reaches_kernel(pair: &Pair) -> bool {
    /// Much longer than the time between two datagrams in flight at once, even if two cores process them.
    const STRAGGLER: Duration = Duration::from_millis(100);

    let kernel = pair.xdp.enter(|| UdpSocket::bind((XDP_ADDRESS, 0))).unwrap();
    let steered = pair.xdp.enter(|| UdpSocket::bind((XDP_ADDRESS, PORT))).unwrap();
    kernel.set_read_timeout(Some(PATIENCE)).unwrap();
    steered.set_read_timeout(Some(STRAGGLER)).unwrap();
    let peer = pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 0))).unwrap();
    peer.send_to(b"?", (XDP_ADDRESS, PORT)).unwrap();
    // This datagram is sent after the first, and the kernel gets it in any case.
    peer.send_to(b"passes", kernel.local_addr().unwrap()).unwrap();
    assert_eq!(kernel.recv(&mut [0; 8]).unwrap(), 6);
    steered.recv(&mut [0; 8]).is_ok()
}

/// Starts a child process that steers until it is killed.
fn start_steering_child(pair: &Pair, pin: Option<&Path>) -> Killed {
    Killed::start(&pair.xdp, "child_that_steers_until_it_is_killed", |command| {
        command.env(CHILD_INTERFACE, &pair.interface.name).env(CHILD_PIN, pin.unwrap_or(Path::new("")));
    })
}

/// As a test, it does nothing. As the child process of a test, it attaches a program, reports it, and waits.
#[test]
fn child_that_steers_until_it_is_killed() {
    let Ok(name) = std::env::var(CHILD_INTERFACE) else { return };
    let pin = std::env::var_os(CHILD_PIN).filter(|pin| !pin.is_empty()).map(PathBuf::from);
    let interface = Interface::find(&name).unwrap();
    let (_memory, umem) = memory();
    let mut socket = Socket::open(&umem, &interface, 0, RINGS, Mode::Auto).unwrap();
    socket.fill(chunks(0, 64));
    let rules = ports(XDP_ADDRESS, &[PORT]);
    let steering = Steering::attach(&interface, &rules, 1, AttachMode::Auto, pin.as_deref()).unwrap();
    steering.set_socket(0, &socket).unwrap();
    report_ready_and_wait();
}

#[test]
fn dropped_steering_leaves_the_interface_as_it_was() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    for _ in 0..3 {
        let steering = attach(&pair.xdp, &pair.interface, None).unwrap();
        steering.set_socket(0, &socket).unwrap();
        assert!(!reaches_kernel(&pair));
        let second = attach(&pair.xdp, &pair.interface, None);
        assert!(matches!(second, Err(XdpError::AlreadyAttached { .. })), "{second:?}");
        drop(steering);
        assert!(reaches_kernel(&pair));
    }
    assert_eq!(receive(&mut socket, 3).len(), 3);
}

#[test]
fn the_kernel_gets_the_traffic_again_when_the_process_is_killed() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    for _ in 0..2 {
        let child = start_steering_child(&pair, None);
        assert!(!reaches_kernel(&pair));
        child.kill();
        assert!(reaches_kernel(&pair));
    }
}

#[test]
fn pinned_steering_outlives_its_process_and_is_replaced_by_the_next() {
    let Some(testbed) = testbed() else { return };
    let Some(folder) = BpfFolder::new("outlives") else { return };
    let (pair, pin) = (Pair::new(&testbed, 1), folder.pin("steering"));
    let child = start_steering_child(&pair, Some(&pin));
    assert!(!reaches_kernel(&pair) && pin.exists());
    let refused = attach(&pair.xdp, &pair.interface, Some(&pin));
    assert!(matches!(refused, Err(XdpError::PinInUse { .. })), "{refused:?}");
    child.kill();
    assert!(pin.exists() && reaches_kernel(&pair), "attached, but without a socket");
    let refused = attach(&pair.xdp, &pair.interface, None);
    assert!(matches!(refused, Err(XdpError::AlreadyAttached { .. })), "{refused:?}");
    // The next process takes over.
    let child = start_steering_child(&pair, Some(&pin));
    assert!(!reaches_kernel(&pair));
    child.kill();
    assert!(Steering::remove_pin(&pin).unwrap() && !pin.exists());
    assert!(!Steering::remove_pin(&pin).unwrap());
    attach(&pair.xdp, &pair.interface, None).unwrap();
}

#[test]
fn a_pin_outside_a_bpf_file_system_is_refused_with_advice_and_nothing_stays_attached() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let pin = std::env::temp_dir().join(format!("landfall-no-bpf-{}", std::process::id()));
    let refused = attach(&pair.xdp, &pair.interface, Some(&pin)).unwrap_err();
    assert!(matches!(refused, XdpError::CannotKeepPin { .. }), "{refused:?}");
    assert!(refused.to_string().contains("mount -t bpf"), "{refused}");
    attach(&pair.xdp, &pair.interface, None).unwrap();
}

#[test]
fn loopback_accepts_the_program_in_the_generic_path_only() {
    let Some(testbed) = testbed() else { return };
    let host = testbed.host("alone").unwrap();
    let lo = host.enter(|| Interface::find("lo")).unwrap();
    let attach = |mode| host.enter(|| Steering::attach(&lo, &Rules::default(), 1, mode, None));
    let refused = attach(AttachMode::Native);
    assert!(matches!(refused, Err(XdpError::NoNativeXdp { .. })), "{refused:?}");
    assert!(!attach(AttachMode::Auto).unwrap().is_native());
}

#[test]
fn an_interface_of_another_namespace_is_refused() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let steering = attach(&pair.peer, &pair.interface, None);
    assert!(matches!(steering, Err(XdpError::OtherNamespace { .. })), "{steering:?}");
    let socket = pair.peer.enter(|| Socket::open(&umem, &pair.interface, 0, RINGS, Mode::Auto));
    assert!(matches!(socket, Err(XdpError::OtherNamespace { .. })), "{socket:?}");
}
