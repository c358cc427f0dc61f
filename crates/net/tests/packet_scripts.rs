//! Packet scripts: what the stack sends for what arrives, and when. The scripts are in `tests/scripts`; the head of
//! `tests/script/mod.rs` describes their format.

#![allow(clippy::cast_sign_loss, reason = "sequence numbers and timestamps wrap")]

mod script;
mod support;

use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn run(name: &str) {
    let path = folder().join(format!("{name}.script"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    script::run(name, &text);
}

/// One test for each script.
macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_script_in_the_folder_is_run() {
            let known = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(folder()).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(known.contains(&name), "{name} is not in the list");
            }
        }
    };
}

scripts! {
    abort
    abort_in_syn_received
    acknowledge_holes_at_once
    acknowledgement_at_the_edge
    active_close
    active_open
    bad_acknowledgements
    close_in_syn_sent
    damaged_packets
    damaged_packets_v6
    delayed_ack
    ecn
    ecn_without_sack_and_loss
    fast_retransmit_with_sack
    fast_retransmit_without_sack
    fin_after_hole
    fin_waits_for_window
    frames_limit_of_a_paused_reader
    frames_limit_of_all_paused_readers
    half_open_checks
    handshake_round_trip
    half_open_peer
    idle_restart
    karn
    keep_alive
    lost_retransmission
    orphan_slow_peer
    orphans
    out_of_window_is_answered_rarely
    overlaps
    passive_close
    passive_open
    black_hole
    path_mtu
    path_mtu_v6
    paused_reader
    paws_after_long_idle
    push
    reneging
    reordering
    reset_checks
    retransmission_timeout
    retransmission_timer_is_not_put_off
    segment_sizes
    silly_window_receiver
    silly_window_sender
    simultaneous_close
    simultaneous_open
    simultaneous_open_then_close
    syn_ack_retransmission
    syn_cookies
    syn_in_established
    syn_retransmission
    syn_timeout_then_data
    tail_loss_probe
    tail_probe_in_recovery
    timestamps_measure_retransmissions
    time_wait_bound
    time_wait_reuse
    time_wait_without_listener
    timeout_repairs_in_slow_start
    timestamps
    user_timeout
    window_never_moves_back
    window_scaling
    zero_window_probes
    zero_window_unanswered
}
