//! A wire that loses frames. The kernel forwards and drops them, so that no frame waits until a process is scheduled.

use crate::host::Host;
use crate::link::{self, LinkOptions};
use crate::sys::Forwarder;
use crate::unavailable::Unavailable;

/// A lossy wire between two hosts. The wire is removed when this value is dropped.
#[derive(Debug)]
pub struct LossyWire {
    _forwarders: [Forwarder; 2],
    _host: Host,
}

impl LossyWire {
    pub(crate) fn between(
        a: &Host,
        b: &Host,
        options: &LinkOptions,
        lose: u32,
    ) -> Result<(Self, String, String), Unavailable> {
        let link::Through { host, ends: [name_a, name_b], here: [here_a, here_b] } =
            link::join_through("wire", [a, b], options)?;
        let forwarders = host
            .enter(|| Ok([Forwarder::new(&here_a, &here_b, lose)?, Forwarder::new(&here_b, &here_a, lose)?]));
        let forwarders = forwarders.map_err(|e: std::io::Error| {
            Unavailable::new("programs in the kernel's traffic control (Linux 6.6, CONFIG_NET_XGRESS)", e)
        })?;
        Ok((Self { _forwarders: forwarders, _host: host }, name_a, name_b))
    }
}
