//! Plain client-server over UDP: a tag and a request, the tag and the response. One commit for what arrives together.

use super::handler::{self, Handler};
use super::replicas::Replicas;
use super::{Batch, announce, open_udp};
use crate::error::BenchError;
use crate::pmnet::args::PmnetServerArgs;
use crate::sys::{note_stop_signals, stop_asked};
use std::net::UdpSocket;

pub(super) fn run(args: &PmnetServerArgs) -> Result<(), BenchError> {
    note_stop_signals();
    let socket = open_udp(args.listen)?;
    let mut handler = Handler::open(args)?;
    let mut replicas = Replicas::open(&args.replicas, args.spin)?;
    announce();
    let (mut batch, mut replies) = (Batch::default(), Vec::new());
    while !stop_asked() {
        batch.receive(&socket, args.spin).map_err(BenchError::connection("a client"))?;
        serve(&socket, &batch, &mut handler, &mut replicas, &mut replies)?;
    }
    Ok(())
}

fn serve(
    socket: &UdpSocket,
    batch: &Batch,
    handler: &mut Handler,
    replicas: &mut Replicas,
    replies: &mut Vec<Vec<u8>>,
) -> Result<(), BenchError> {
    // Replicas work while this one does.
    replicas.send(batch.requests().map(|(_, _, request)| request))?;
    replies.clear();
    for (_, tag, request) in batch.requests() {
        let response = handler.apply(request, None).map_err(handler::failed)?;
        replies.push([tag, &response].concat());
    }
    handler.commit().map_err(handler::failed)?;
    replicas.wait()?;
    for ((to, _, _), reply) in batch.requests().zip(replies.iter()) {
        // What is lost is asked for again.
        let _ = socket.send_to(reply, to);
    }
    Ok(())
}
