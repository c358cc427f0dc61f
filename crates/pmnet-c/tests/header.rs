//! The header and the library declare equal calls, structures and numbers.

mod common;

use common::{SYSTEM_LIBRARIES, cc, crate_dir, has, header, libraries, run};
use pmnet::abi::{
    ClientOptions, Code, KEY_BYTES, Kind, NO_DEVICES, ROW_BYTES, Request, SPIN_ALWAYS, ServerOptions,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// Names of the functions that the header declares, outside its comments.
fn declared() -> BTreeSet<String> {
    let text = without_comments(&header());
    let calls = text.match_indices("PMNet_").filter_map(|(at, _)| {
        let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        text[at + name.len()..].starts_with('(').then_some(name)
    });
    calls.collect()
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("*/").map_or("", |(_, code)| code))
}

fn compile(dir: &Path, name: &str, program: &str) -> std::path::PathBuf {
    let (source, object) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
    std::fs::write(&source, program).unwrap();
    run(cc().arg("-c").arg(&source).arg("-o").arg(&object));
    object
}

#[test]
fn the_six_calls_of_table_i_are_declared() {
    let declared = declared();
    for name in ["send_update", "bypass", "start_session", "end_session", "recv", "ack"] {
        assert!(declared.contains(&format!("PMNet_{name}")), "{name}");
    }
    assert_eq!(declared.len(), 18, "{declared:?}");
}

#[test]
fn the_header_compiles_as_c_and_as_cxx_without_a_warning() {
    let file = crate_dir().join("include/pmnet.h");
    for (program, language, standard) in [("cc", "c", "c11"), ("c++", "c++", "c++11")] {
        if has(program) {
            let mut command = Command::new(program);
            command.args(["-x", language, &format!("-std={standard}"), "-pedantic"]);
            run(command.args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]).arg(&file));
        }
    }
}

#[test]
fn each_declared_call_is_in_both_libraries() {
    if !has("cc") {
        return;
    }
    let (dir, libraries) = (tempfile::tempdir().unwrap(), libraries());
    let mut program = "#include <pmnet.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for name in declared() {
        writeln!(program, "printf(\"%d\", {name} != 0);").unwrap();
    }
    // The compiler knows that no function is null.
    let object =
        compile(dir.path(), "all", &format!("#pragma GCC diagnostic ignored \"-Waddress\"\n{program}}}\n"));
    let (with_static, with_shared) = (dir.path().join("static"), dir.path().join("shared"));
    let archive = libraries.join("libpmnet.a");
    run(cc().arg(&object).arg(archive).args(SYSTEM_LIBRARIES).arg("-o").arg(&with_static));
    run(cc().arg(&object).arg("-L").arg(&libraries).arg("-lpmnet").arg("-o").arg(&with_shared));
    let ones = "1".repeat(declared().len());
    assert_eq!(run(&mut Command::new(with_static)).stdout, ones.as_bytes());
    assert_eq!(run(Command::new(with_shared).env("LD_LIBRARY_PATH", libraries)).stdout, ones.as_bytes());
}

#[test]
fn the_shared_library_exports_exactly_the_declared_calls() {
    if !has("nm") {
        return;
    }
    let library = libraries().join("libpmnet.so");
    let output = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect();
    assert_eq!(exported, declared());
}

macro_rules! layout {
    ($program:ident, $name:literal, $type:ty: $($field:ident)*) => {
        let (size, align) = (size_of::<$type>(), align_of::<$type>());
        writeln!($program, "_Static_assert(sizeof({0}) == {size} && _Alignof({0}) == {align}, \"\");", $name).unwrap();
        $({
            let (at, field) = (offset_of!($type, $field), stringify!($field));
            writeln!($program, "_Static_assert(offsetof({}, {field}) == {at}, \"{field}\");", $name).unwrap();
        })*
    };
}

#[test]
fn structures_and_numbers_match_the_header() {
    if !has("cc") {
        return;
    }
    let mut program = "#include <pmnet.h>\n".to_owned();
    layout!(program, "PMNet_client_options", ClientOptions: size bind mtu window requests_max give_up_ms spin reserved key_file);
    layout!(program, "PMNet_server_options", ServerOptions:
        size rows rows_count floor mtu sessions_max batch_max foreign spin key_file silence_seconds silence_devices);
    layout!(program, "PMNet_request", Request:
        id kind lost bytes len key row evicted evicted_count floor behind);
    let codes = Code::ALL.map(|code| (code.name().to_str().unwrap(), i64::from(code.number())));
    let bytes = |len: usize| i64::try_from(len).unwrap();
    let others = [
        ("PMNET_UPDATE", Kind::Update as i64),
        ("PMNET_BYPASS", Kind::Bypass as i64),
        ("PMNET_ROW", Kind::Row as i64),
        ("PMNET_KEY_BYTES", bytes(KEY_BYTES)),
        ("PMNET_ROW_BYTES", bytes(ROW_BYTES)),
        ("PMNET_SPIN_ALWAYS", i64::from(SPIN_ALWAYS)),
        ("PMNET_NO_DEVICES", i64::from(NO_DEVICES)),
    ];
    for (name, number) in codes.into_iter().chain(others) {
        writeln!(program, "_Static_assert({name} == {number}, \"{name}\");").unwrap();
    }
    let enumerated = without_comments(&header());
    assert_eq!(enumerated.matches("PMNET_E_").count() + 2, Code::ALL.len());
    compile(tempfile::tempdir().unwrap().path(), "layout", &program);
}

#[test]
fn the_version_matches_the_header() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(header().contains(&format!("#define PMNET_VERSION \"{version}\"\n")));
}
