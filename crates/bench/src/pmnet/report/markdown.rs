//! `pmnet.md`: the tables.

use super::goal::{Goal, how, over_apps};
use super::judge::{mean, ratio, rps, update_mean};
use super::{Results, paper, simulated};
use crate::common::measure::stats::Summary;
use crate::common::plots::Plot;
use crate::common::tables::{Page, bytes, number, spread, spread_of};
use crate::common::targets::Bound;
use crate::pmnet::app::App;
use crate::pmnet::breakdown::PARTS;
use crate::pmnet::choices::{LARGE_PAYLOAD, PAYLOAD, app, key_value};
use crate::pmnet::compare::{Row, find, groups};
use crate::pmnet::design::{Design, PMNET, PMNET_3, PMNET_CACHE, PMNET_FILE, Spec, Waits};
use crate::pmnet::sections::{FIGURE_16, FIGURE_20, copies, figure_22_loads, replicated};

/// The report as text.
pub(super) fn report(results: &Results, goals: &[Goal], plots: &[Plot]) -> String {
    let mut page = Page::default();
    head(&mut page, results);
    goal_table(&mut page, goals);
    page.plots(plots);
    figure_2(&mut page, results);
    figure_15(&mut page, results);
    figure_16(&mut page, results);
    figure_18(&mut page, results);
    figure_19(&mut page, results);
    figure_20(&mut page, results);
    figure_21(&mut page, results);
    figure_22(&mut page, results);
    recovery(&mut page, results);
    simulated::table(&mut page, results);
    everything(&mut page, results);
    page.0
}

fn head(page: &mut Page, results: &Results) {
    let (machine, settings) = (&results.machine, &results.settings);
    page.paragraph("# landfall bench pmnet");
    page.paragraph(
        "The evaluation of *PMNet: In-Network Data Persistence* (ISCA 2021, section VI) repeated with this device, this \
         client and server, and the paper's baselines.",
    );
    page.paragraph(&format!(
        "landfall {} on {} ({} cores, {} of memory, Linux {}). Client, devices, server and replicas are hosts (network \
         namespaces) joined by veth pairs; {}. {} rounds of {} s, all contestants of a figure in turns within each round, \
         each started afresh; up to {} requests in front of each run do not count ({:.0} s in all). Figures are medians \
         over the rounds, with the smallest and largest in brackets; ratios are taken round by round.",
        results.landfall_version,
        machine.processor,
        machine.cores,
        bytes(machine.memory as f64),
        machine.kernel,
        results.pinning,
        settings.rounds,
        settings.seconds,
        settings.warm_up,
        results.took_seconds,
    ));
    if settings.quick {
        page.paragraph("**A quick run: it shows that everything works. Its figures mean nothing.**");
    }
    words(page, results);
    results.notes.iter().for_each(|note| page.line(&format!("- {note}")));
    page.line("");
}

/// Explains the designs and the differences from the paper.
fn words(page: &mut Page, results: &Results) {
    let settings = &results.settings;
    page.paragraph(
        "*Client-server* goes the same way as PMNet: through the device, which forwards what is not PMNet's in the kernel \
         (XDP), over UDP; Redis and what stands on it over TCP, as in the paper. *Direct* is a veth pair without a device. \
         *Bypass* goes past the device, whose process does not see it, and is answered by the server. *Device polls*: the device's \
         core never waits, as a switch's pipeline does not, while clients and servers wait in the kernel, as the paper's do. \
         *Spinning*: client and whoever answers it never wait. In both, what works behind the client's back is on the \
         client's core, which it has while the client rests; otherwise all wait in the kernel, and devices and servers share \
         a core. *On a file*: commits of the structures end with `fdatasync` on an ordinary file system, as those of Redis \
         (`appendfsync always`) do, and of Twitter and TPC-C on it; else structures are in pools on persistent memory, each commit \
         flushed and fenced. *Redis on tmpfs* syncs always, too, and its append-only file is on tmpfs, as the paper's is on a DAX file system: \
         a write is a copy and a sync a call, but no line is flushed, where a DAX file system writes past the caches.",
    );
    page.paragraph(&format!(
        "*A client that rests* pauses for {} µs after each request (4 times as long where the server's commits \
         wait for a file or it is redis or stands behind a side-car, three times that with two more servers), so that what the server does behind its back does not \
         delay the next one: in the paper that is another machine's work. Its requests a second are those of the time \
         without the pauses: what one closed-loop client does where hosts have cores of their own. Clients that never \
         rest share the cores with all that is done behind their backs.",
        settings.rest_us
    ));
    if settings.look_us > 0 {
        page.paragraph(&format!(
            "*Clients look for answers for {} µs before they wait in the kernel*, all alike, whoever answers them; servers \
             wait at once. What answers sooner costs no wake-up of the client.",
            settings.look_us
        ));
    }
    if results.waits_for_servers {
        page.paragraph(
            "*Server CPU* is that of all servers, from the first request until everything is executed, over all requests of \
             that time; the warm-up is among them. After a run through devices their logs must empty, and the server must have \
             executed as many updates as were sent and rejected none; otherwise the contestant has failed. Rates and latencies \
             are those of the clients, and leave that wait out.",
        );
    }
    page.paragraph(&format!(
        "What is not as in the paper: one machine, and few cores: all devices, servers, loggers and replicas share one, \
         clients another, so that what the paper's hosts do at the same time is done one after the other here, most of \
         all with three copies and with many clients. A veth pair is no network: sending runs the peer's receive path on \
         the sender's core. Persistent memory is tmpfs with its instructions (`clwb`, `sfence`). {}",
        if settings.let_sleep {
            "Cores may sleep between packets: virtual ones take tens of µs to wake."
        } else {
            "Where nobody spins, a thread of the lowest class keeps each core from sleeping, for everybody alike."
        }
    ));
}

fn goal_table(page: &mut Page, goals: &[Goal]) {
    page.paragraph("## Targets");
    let rows = goals.iter().map(|Goal { figure, target, paper }| {
        let sign = if target.bound == Bound::AtLeast { "≥" } else { "≤" };
        let verdict = match target.met() {
            Some(true) => "met",
            Some(false) => "**short**",
            None => target.why_unjudged(),
        };
        vec![
            (*figure).to_owned(),
            target.what.clone(),
            paper.clone(),
            format!("{sign} {} {}", target.wanted, target.unit),
            spread_of(target.measured.as_ref()),
            verdict.into(),
        ]
    });
    page.table(&["figure", "what", "the paper", "aim", "measured", "verdict"], rows);
}

const COLUMNS: [&str; 9] = [
    "design",
    "requests/s",
    "mean µs",
    "p50 µs",
    "p99 µs",
    "÷ PMNet",
    "device CPU µs",
    "server CPU µs",
    "sent again ‰",
];

/// Writes the rows of one load, each with its median latency over PMNet's.
fn rows_table(page: &mut Page, rows: &[&Row]) {
    let cells = rows.iter().map(|row| {
        let base = rows.iter().find(|base| base.spec == row.spec.by_design(PMNET));
        vec![
            name_of(&row.spec),
            spread(&row.rps),
            spread(&row.mean_us),
            spread(&row.p50_us),
            spread(&row.p99_us),
            spread_of(base.and_then(|base| row.p50_us.over(&base.p50_us)).as_ref()),
            spread_of(row.device_us.as_ref()),
            spread_of(row.server_us.as_ref()),
            number(row.again.median),
        ]
    });
    page.table(&COLUMNS, cells);
}

fn name_of(spec: &Spec) -> String {
    format!("{}{}", spec.design.name(), spec.waits.words())
}

fn is_ideal(spec: &Spec, payload: usize) -> bool {
    spec.app == App::Ideal && spec.payload == payload && spec.updates == 100
}

fn figure_2(page: &mut Page, results: &Results) {
    if results.breakdown.is_empty() {
        return;
    }
    page.paragraph("## Figure 2: where an update's time goes without PMNet");
    page.paragraph(&format!(
        "The paper: the server's stack and processing, persistence included, are {} % on average. Client-server, one client that \
         rests, everybody waits in the kernel, {PAYLOAD} B; means over the middle half of each run's round trips, µs, medians over \
         the rounds, each with its share. All hosts have one clock. *Client's stack*: from before the client's call that sends until the \
         packet leaves its interface, and from the reply's arrival there until the client has it, being woken included. *Network*: between the \
         client's interface and the server's, through the device that forwards, both ways. *Server's stack*: from the packet's arrival at the \
         server's interface until the server has it, being woken included, and from when the update is durable until the reply leaves. \
         *Processing*: the handler, until its commit. *Persistence*: the commit. The kernel stamps packets at both interfaces (packet \
         sockets that nobody waits for), the structures' server stamps what it does. Redis is not changed: processing is what it says \
         itself that a SET takes, persistence how much sooner the reply leaves in a run beside it without an append-only file, and the rest \
         its stack, in which its own reading and parsing is. *Without stamps*: the mean latency where Figures 19 to 21 measured the same load.",
        paper::SERVER_SHARE
    ));
    let mut head = vec!["application"];
    head.extend(PARTS);
    head.extend(["round trip", "the server's share %", "without stamps"]);
    let cells = results.breakdown.iter().map(|row| {
        let part = |(at, us): (usize, &Summary)| {
            let share = row.share(at).map_or("–".into(), |share| number(share.median));
            format!("{}, {share} %", spread(us))
        };
        let parts: Vec<String> = row.parts.iter().enumerate().map(part).collect();
        let plain = find(&results.rows, app(row.app, Design::ClientServer, 100, 1));
        let whole = vec![
            spread(&row.round_trip),
            spread_of(row.server_share().as_ref()),
            spread_of(plain.map(|row| &row.mean_us)),
        ];
        [vec![row.app.name().into_owned()], parts, whole].concat()
    });
    page.table(&head, cells);
}

fn figure_15(page: &mut Page, results: &Results) {
    let sizes = &results.settings.sizes;
    let designs =
        [Design::Direct, Design::ClientServer, Design::Tcp, Design::Bypass, PMNET, Design::Nic, PMNET_FILE];
    let of_figure = |row: &&Row| {
        let size = sizes.iter().any(|size| is_ideal(&row.spec, *size));
        size && row.spec.rests && designs.contains(&row.spec.design)
    };
    let rows: Vec<Row> = results.rows.iter().filter(of_figure).cloned().collect();
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Figure 15: update latency of an ideal request handler, one client");
    page.paragraph(&format!(
        "The paper: client-server takes {} times as long as PMNet-Switch at {} B, {} times at {} B; PMNet-NIC is within a \
         microsecond of it. *PMNet* is PMNet-Switch. *PMNet-NIC* is the same device on the server's own host, which takes the \
         server's network card for its own (`--nic`) and hands packets to the host's kernel through a TUN interface; the switch \
         in front of it only forwards, in the kernel.",
        paper::FIGURE_15[0].1,
        paper::FIGURE_15[0].0,
        paper::FIGURE_15[1].1,
        paper::FIGURE_15[1].0,
    ));
    for (size, rows) in groups(&rows, |spec| spec.payload) {
        page.paragraph(&format!("### {size} B"));
        rows_table(page, &rows);
    }
}

fn figure_16(page: &mut Page, results: &Results) {
    let of_figure =
        |row: &&Row| is_ideal(&row.spec, LARGE_PAYLOAD) && row.spec.waits == Waits::Block && !row.spec.rests;
    let rows: Vec<Row> = results.rows.iter().filter(of_figure).cloned().collect();
    if rows.is_empty() {
        return;
    }
    page.paragraph("## Figure 16: bandwidth and latency, 1000 B, ideal handler");
    page.paragraph(
        "The paper: latency stays low until the link of 10 Gbit/s is full; below that PMNet's is always the lower one. Here \
         the cores are what is full first.",
    );
    let cells = rows.iter().filter(|row| FIGURE_16.contains(&row.spec.design)).map(|row| {
        let gbits = row.rps.median * (LARGE_PAYLOAD * 8) as f64 / 1e9;
        vec![
            row.spec.clients.to_string(),
            name_of(&row.spec),
            number(gbits),
            spread(&row.rps),
            spread(&row.mean_us),
            spread(&row.p99_us),
            spread_of(row.device_us.as_ref()),
            spread_of(row.server_us.as_ref()),
        ]
    });
    let head =
        ["clients", "design", "Gbit/s", "requests/s", "mean µs", "p99 µs", "device CPU µs", "server CPU µs"];
    page.table(&head, cells);
}

fn figure_18(page: &mut Page, results: &Results) {
    let logs = [1, 3].map(|copies| [Design::ClientLog { copies }, Design::ServerLog { copies }]).concat();
    if !results.rows.iter().any(|row| logs.contains(&row.spec.design)) {
        return;
    }
    page.paragraph("## Figure 18: against logging at the client and at the server, 100 B, ideal handler");
    page.paragraph(
        "A logger is a process of its own that stores, flushes and fences, and then replies; with three copies it has two \
         other hosts' loggers do so first, at the same time. Server-side: on the server's host, and passed on to the \
         server afterwards. Client-side: on the client's host.",
    );
    let (server, client) = (paper::SERVER_LOG, paper::CLIENT_LOG);
    let designs = [
        (Design::ClientServer, "–".to_owned()),
        (logs[0], number(client[0])),
        (logs[1], number(server[0])),
        (PMNET, number(paper::PMNET_LOG[0])),
        (logs[2], number(client[1])),
        (logs[3], number(server[1])),
        (PMNET_3, number(paper::PMNET_LOG[1])),
    ];
    let cells = [Waits::Block, Waits::Polls, Waits::Spin].into_iter().flat_map(|waits| {
        designs.iter().filter_map(move |(design, paper)| {
            let spec = Some(Spec::ideal(*design, waits, PAYLOAD)).filter(|spec| spec.waits == waits)?;
            let row = find(&results.rows, spec)?;
            let base = find(&results.rows, Spec::ideal(PMNET, waits, PAYLOAD));
            let over = base.and_then(|base| row.p50_us.over(&base.p50_us));
            Some(vec![
                name_of(&row.spec),
                paper.clone(),
                spread(&row.p50_us),
                spread(&row.mean_us),
                spread(&row.p99_us),
                spread_of(over.as_ref()),
            ])
        })
    });
    page.table(&["design", "the paper, µs", "p50 µs", "mean µs", "p99 µs", "÷ PMNet"], cells);
}

/// Returns the measured applications in the order of the paper.
fn apps(results: &Results) -> Vec<App> {
    results.settings.apps.iter().map(|choice| choice.app()).collect()
}

fn figure_19(page: &mut Page, results: &Results) {
    let rows = &results.rows;
    let counts = [1, results.settings.app_clients];
    let speed = |it, updates, clients| {
        ratio(rows, app(it, PMNET, updates, clients), app(it, Design::ClientServer, updates, clients), rps)
    };
    if !rows.iter().any(|row| row.spec.app != App::Ideal) {
        return;
    }
    page.paragraph("## Figure 19: throughput over client-server, by the share of updates");
    page.paragraph(&format!("The paper: {} on average with updates only.", paper::FIGURE_19));
    let ratios = &results.settings.ratios;
    let mut head = vec!["application".to_owned(), "clients".to_owned()];
    head.extend(ratios.iter().map(|updates| format!("{updates} %")));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let all = apps(results);
    let mut cells = Vec::new();
    for clients in counts {
        for it in &all {
            let values = ratios.iter().map(|updates| spread_of(speed(*it, *updates, clients).as_ref()));
            cells.push([vec![it.name().into_owned(), clients.to_string()], values.collect()].concat());
        }
        let choices = &results.settings.apps;
        let mean =
            |updates: &u32| over_apps(choices, &all, |it| speed(it, *updates, clients)).map(|(mean, _)| mean);
        let values = ratios.iter().map(|updates| spread_of(mean(updates).as_ref()));
        cells.push([vec!["**mean**".into(), clients.to_string()], values.collect()].concat());
    }
    page.table(&head, cells);
    mixes(page, rows, &all);
}

/// Explains the workloads' requests.
fn mixes(page: &mut Page, rows: &[Row], apps: &[App]) {
    let dependent = |app: &App| app.is_on_redis() && !app.is_key_value();
    let cells = apps.iter().filter(|app| dependent(app)).filter_map(|it| {
        let row = find(rows, app(*it, Design::ClientServer, 100, 1))?;
        let (reads, locks) = (row.reads.as_ref()?.median, row.locks.as_ref()?.median);
        let updates = 100.0 - reads - locks;
        let per_transaction = row.rps.over(&row.tps);
        let name = it.name().into_owned();
        let shares = [updates, reads, locks].map(number);
        Some([vec![name], shares.to_vec(), vec![spread_of(per_transaction.as_ref())]].concat())
    });
    let cells: Vec<Vec<String>> = cells.collect();
    if cells.is_empty() {
        return;
    }
    page.paragraph(&format!(
        "What Twitter and TPC-C ask for where every transaction writes (100 %), percent of their requests. Key-value workloads send \
         updates and reads in the share that heads the column, by keys after Zipf's law, as YCSB does; of Twitter and TPC-C, that \
         is the share of transactions that write. Twitter: of those, 80 % post (a number from `INCR`, the post, the list of followers, and a \
         place in each one's list and in the timeline), 20 % follow somebody. TPC-C: new-order and payment in its proportion (45 to 43), each \
         under a lock of its district; order-status reads. Locks, and the numbers that `INCR` hands out, must be taken at the server and bypass \
         the log, and so do reads: {} % of the paper's TPC-C requests are for locks.",
        paper::LOCKS
    ));
    page.table(&["application", "updates", "reads", "locks and numbers", "requests a transaction"], cells);
}

fn figure_20(page: &mut Page, results: &Results) {
    let rows = &results.rows;
    let key_value = key_value(&results.settings.apps);
    for updates in FIGURE_20 {
        let specs = key_value.iter().flat_map(|it| {
            [Design::ClientServer, PMNET, PMNET_CACHE].map(|design| app(*it, design, updates, 1))
        });
        let found: Vec<&Row> = specs.filter_map(|spec| find(rows, spec)).collect();
        if found.is_empty() {
            continue;
        }
        page.paragraph(&format!("## Figure 20: latency with {updates} % updates, one client"));
        page.paragraph(&format!(
            "The paper: {} times the 99th percentile with updates only; with the read cache {} times the mean.",
            paper::TAIL, paper::CACHE_MEAN
        ));
        let cells = found.iter().map(|row| {
            let base = find(rows, row.spec.by_design(Design::ClientServer));
            let over =
                |of: fn(&Row) -> &Summary| spread_of(base.and_then(|base| of(base).over(of(row))).as_ref());
            vec![
                row.spec.app.name().into_owned(),
                name_of(&row.spec),
                spread(&row.mean_us),
                over(mean),
                spread(&row.p50_us),
                spread(&row.p99_us),
                over(super::judge::p99),
                number(row.cached.median),
            ]
        });
        let head = [
            "application",
            "design",
            "mean µs",
            "client-server ÷",
            "p50 µs",
            "p99 µs",
            "client-server ÷",
            "from the cache %",
        ];
        page.table(&head, cells);
    }
}

fn figure_21(page: &mut Page, results: &Results) {
    let rows = &results.rows;
    if !rows.iter().any(|row| row.spec.design == Design::Replicated) {
        return;
    }
    page.paragraph("## Figure 21: three copies, latency over client-server with one");
    page.paragraph(&format!(
        "The paper: three devices are {} times as fast as replication by servers, and {} % slower than one device. Here the \
         three devices share a core: what they do side by side in the paper comes one after the other. Behind three devices, \
         the server has two others commit an update before it confirms it. Replicas of redis are two more of it, each with what the \
         first one has (`appendfsync always`), and what changes something is done once both have it (`WAIT 2`, in the same packet); \
         behind three devices the server's side-car waits for them so. Latencies of updates alone: Twitter and TPC-C also read, \
         and take numbers and locks, which no log may acknowledge.",
        paper::REPLICATED, paper::COPIES
    ));
    let designs = [Design::ClientServer, Design::Replicated, PMNET, PMNET_3];
    let all = replicated(&results.settings.apps);
    let cells = all.filter_map(|it| {
        let base = find(rows, copies(it, Design::ClientServer))?;
        let values = designs.map(|design| {
            let row = find(rows, copies(it, design));
            spread_of(row.and_then(|row| update_mean(row).over(update_mean(base))).as_ref())
        });
        let better = ratio(rows, copies(it, Design::Replicated), copies(it, PMNET_3), update_mean)?;
        let added = ratio(rows, copies(it, PMNET_3), copies(it, PMNET), update_mean);
        let bypasses = base.locks.as_ref().zip(base.reads.as_ref());
        let bypasses = bypasses.map_or("–".into(), |(locks, reads)| number(locks.median + reads.median));
        let cells = [vec![it.name().into_owned()], values.to_vec()].concat();
        Some([cells, vec![spread(&better), spread_of(added.as_ref()), bypasses]].concat())
    });
    let names = designs.map(Design::name);
    let mut head = vec!["application"];
    head.extend(names.iter().map(String::as_str));
    head.extend(["servers ÷ devices", "3 devices ÷ 1", "requests that bypass %"]);
    page.table(&head, cells);
}

fn figure_22(page: &mut Page, results: &Results) {
    let rows = &results.rows;
    let cells: Vec<Vec<String>> = figure_22_loads(&results.settings.clients)
        .into_iter()
        .filter_map(|[base, ours]| {
            let (base, ours) = (find(rows, base)?, find(rows, ours)?);
            let stack = how(ours.spec.waits);
            let rests = if base.spec.rests { ", resting" } else { "" };
            Some(vec![
                format!("{}{rests}", base.spec.clients),
                stack.into(),
                spread(&base.rps),
                spread(&ours.rps),
                spread_of(ours.rps.over(&base.rps).as_ref()),
                spread_of(base.p50_us.over(&ours.p50_us).as_ref()),
            ])
        })
        .collect();
    if cells.is_empty() {
        return;
    }
    page.paragraph("## Figure 22: update throughput with an optimised network stack, 100 B, ideal handler");
    page.paragraph(&format!(
        "The paper runs both ends on libVMA: PMNet brings {} times the throughput without and {} times with it. Here both ends \
         look for packets instead of waiting for the kernel to wake them.",
        paper::FIGURE_22[0], paper::FIGURE_22[1]
    ));
    let head = [
        "clients",
        "stack",
        "client-server, requests/s",
        "PMNet, requests/s",
        "PMNet ÷",
        "latency, client-server ÷ PMNet",
    ];
    page.table(&head, cells);
}

fn recovery(page: &mut Page, results: &Results) {
    if results.recovery.is_empty() {
        return;
    }
    page.paragraph("## Recovery: replay of a device's log");
    page.paragraph(&format!(
        "The server is killed, the log filled with updates of {LARGE_PAYLOAD} B in frames of 2 KiB, the server started again, and \
         timed until the log is empty: every update sent, committed by the durable hash map, and confirmed. The paper: {} µs \
         a request, 4.4 s for all.",
        paper::REPLAY_US
    ));
    let cells = results.recovery.iter().map(|row| {
        vec![
            row.design.name(),
            row.entries.to_string(),
            spread(&row.boot_seconds),
            spread(&row.replay_seconds),
            spread(&row.rate),
            spread(&row.us),
        ]
    });
    let head = ["device", "updates", "server's start s", "replay s", "updates/s", "µs an update"];
    page.table(&head, cells);
}

/// Writes all rows, for reference.
fn everything(page: &mut Page, results: &Results) {
    if results.rows.is_empty() {
        return;
    }
    page.paragraph("## Everything that was measured");
    let cells = results.rows.iter().map(|row| {
        vec![
            row.spec.describe(),
            spread(&row.rps),
            spread(&row.tps),
            spread(&row.mean_us),
            spread(&row.p50_us),
            spread(&row.p99_us),
            spread_of(row.update_p50_us.as_ref()),
            spread_of(row.device_us.as_ref()),
            spread_of(row.server_us.as_ref()),
            spread(&row.acknowledged),
            number(row.again.median),
        ]
    });
    let head = [
        "load",
        "requests/s",
        "transactions/s",
        "mean µs",
        "p50 µs",
        "p99 µs",
        "updates' p50 µs",
        "device CPU µs",
        "server CPU µs",
        "device ACKs %",
        "sent again ‰",
    ];
    page.table(&head, cells);
}

#[cfg(test)]
mod tests {
    use super::report;
    use crate::pmnet::report::judge::judge;
    use crate::pmnet::report::tests::sample;

    #[test]
    fn every_row_of_a_table_is_as_long_as_its_head() {
        let results = sample();
        let text = report(&results, &judge(&results), &[]);
        let mut cells = 0;
        for line in text.lines() {
            let here = line.matches('|').count();
            assert!(!line.starts_with('|') || cells == 0 || cells == here, "{line}");
            cells = if line.starts_with('|') { here } else { 0 };
        }
        for heading in [
            "Figure 2",
            "Figure 15",
            "Figure 16",
            "Figure 18",
            "Figure 19",
            "Figure 20",
            "Figure 21",
            "Figure 22",
            "Recovery",
            "Simulated",
        ] {
            assert!(
                text.contains(&format!("## {heading}:")) || text.contains(&format!("## {heading} ")),
                "{heading}"
            );
        }
        assert!(text.contains("**short**") && text.contains("| met |"), "{text}");
        assert!(!text.contains("not measured") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn older_reports_do_not_claim_that_servers_were_waited_for() {
        let mut results = sample();
        let words = "the server must have executed as many updates";
        assert!(report(&results, &[], &[]).contains(words));
        results.waits_for_servers = false;
        assert!(!report(&results, &[], &[]).contains(words));
    }

    #[test]
    fn figures_that_were_not_measured_are_left_out() {
        let mut results = sample();
        (results.breakdown, results.rows, results.recovery, results.model) = Default::default();
        let text = report(&results, &judge(&results), &[]);
        assert!(!text.contains("## Figure") && text.contains("not measured"), "{text}");
    }
}
