//! Which kernel modules the guest loads, and in which order.

/// Modules required for persistent memory and for the network.
const NEEDED: &[&str] = &["nfit", "nd_pmem", "device_dax", "dax_pmem", "ext4", "virtio_pci", "virtio_net"];
/// Modules required for a mount of a server outside.
pub(super) const HOST: &[&str] =
    &["virtio_pci", "virtio_net", "fuse", "nfit", "nd_pmem", "device_dax", "dax_pmem"];
/// Modules that some kernels no longer have, or no longer need.
const WELCOME: &[&str] = &["crc32c_generic", "crc32c_intel"];

/// Paths of the files to load, below the folder of `modules.dep`, each after its dependencies. `dep` is `modules.dep`,
/// `builtin` is `modules.builtin`.
///
/// # Errors
/// The name of a module that this kernel has neither built in nor as a file.
pub(super) fn load_order(dep: &str, builtin: &str) -> Result<Vec<String>, String> {
    let mut order = load_more(dep, builtin, NEEDED)?;
    WELCOME.iter().filter_map(|wanted| line_of(dep, wanted)).for_each(|line| add(line, &mut order));
    Ok(order)
}

/// The load order of the given modules.
///
/// # Errors
/// See [`load_order`].
pub(super) fn load_more(dep: &str, builtin: &str, modules: &[&str]) -> Result<Vec<String>, String> {
    let mut order: Vec<String> = Vec::new();
    for wanted in modules {
        match line_of(dep, wanted) {
            Some(line) => add(line, &mut order),
            None if builtin.lines().any(|path| is(path, wanted)) => {}
            None => return Err((*wanted).to_owned()),
        }
    }
    Ok(order)
}

/// Adds the modules of a line `path: dependency dependency` in reverse order: dependencies come first.
fn add(line: &str, order: &mut Vec<String>) {
    for path in line.split([':', ' ']).filter(|path| !path.is_empty()).rev() {
        if !order.iter().any(|known| known == path) {
            order.push(path.to_owned());
        }
    }
}

fn line_of<'d>(dep: &'d str, wanted: &str) -> Option<&'d str> {
    dep.lines().find(|line| line.split_once(':').is_some_and(|(path, _)| is(path, wanted)))
}

/// Whether the file is the module. In names `-` and `_` are equivalent.
fn is(path: &str, wanted: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split_once(".ko").map_or(file, |(name, _)| name);
    name.replace('-', "_") == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/d/nfit.ko: kernel/d/libnvdimm.ko
kernel/d/libnvdimm.ko:
kernel/d/nd_btt.ko: kernel/d/libnvdimm.ko
kernel/d/nd_pmem.ko.xz: kernel/d/nd_btt.ko kernel/d/libnvdimm.ko
kernel/d/device_dax.ko:
kernel/d/dax_pmem.ko:
kernel/v/virtio_pci.ko: kernel/v/virtio.ko
kernel/v/virtio-net.ko: kernel/v/virtio.ko
kernel/d/crc32c-intel.ko:
kernel/n/veth.ko:
";

    #[test]
    fn modules_come_after_those_that_they_depend_on_and_once() {
        let order = load_order(DEP, "kernel/fs/ext4/ext4.ko\n").unwrap();
        let names: Vec<&str> = order.iter().map(|path| path.rsplit('/').next().unwrap()).collect();
        let expected = [
            "libnvdimm.ko",
            "nfit.ko",
            "nd_btt.ko",
            "nd_pmem.ko.xz",
            "device_dax.ko",
            "dax_pmem.ko",
            "virtio.ko",
            "virtio_pci.ko",
            "virtio-net.ko",
            "crc32c-intel.ko",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn module_that_the_kernel_lacks_is_named() {
        assert_eq!(load_order(DEP, "").unwrap_err(), "ext4");
        assert_eq!(load_more(DEP, "", &["veth", "bridge"]).unwrap_err(), "bridge");
    }
}
