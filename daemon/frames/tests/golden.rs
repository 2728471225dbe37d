//! Golden bytes: what workers in other languages are tested against. `FUSION_UPDATE_GOLDEN=1` writes them anew, which is right only together with another
//! protocol number.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use fusion_frames::{FinishNanoseconds, Hello, PROTOCOL, Reply, Request, Timed, WireShape, encode};
use serde::Serialize;

fn line<T: Serialize>(text: &mut String, name: &str, message: &T) {
    let frame = encode(message).unwrap();
    let hex = frame.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    writeln!(text, "{name} {hex}").unwrap();
}

fn hello(gpu_cores: Option<u16>) -> Reply {
    Reply::Hello(Hello {
        protocol: PROTOCOL,
        worker_version: "0.1.0".to_owned(),
        brand: "Apple M4 Pro".to_owned(),
        gpu_cores,
        memory_bytes: 25_769_803_776,
        model_identifier: "Mac16,8".to_owned(),
        pair: "gpu+cpu".to_owned(),
        units: "GPU (primary) and CPU (secondary) – zwei".to_owned(),
        os_build: "25G83".to_owned(),
        mlx_version: "0.32.2".to_owned(),
        library_hash: "0badcafe".to_owned(),
    })
}

fn messages() -> String {
    let mut text = String::new();
    let (format, layout) = ("q4/64".to_owned(), "nk".to_owned());
    let shape = WireShape { rows: 512, inputs: 896, outputs: 4864, format, layout };
    line(&mut text, "prepare", &Request::Prepare(shape));
    line(&mut text, "stock", &Request::Stock);
    line(&mut text, "split", &Request::Split { secondary_rows: 716, secondary_first: true });
    line(&mut text, "check", &Request::Check { secondary_rows: 1 });
    line(&mut text, "hello", &hello(Some(20)));
    line(&mut text, "hello-without-gpu", &hello(None));
    line(&mut text, "prepared", &Reply::Prepared { active_bytes: 1 << 33 });
    let finish = Some(FinishNanoseconds { primary: 1, secondary: u64::MAX });
    line(&mut text, "timed-split", &Reply::Timed(Timed { total_ns: 3, finish, run_delay_ns: Some(4) }));
    line(&mut text, "timed-stock", &Reply::Timed(Timed { total_ns: 5, finish: None, run_delay_ns: None }));
    line(&mut text, "checked", &Reply::Checked { relative_error: 1.5e-7 });
    line(&mut text, "refused", &Reply::Refused { reason: "does not fit".to_owned() });
    text
}

#[test]
fn frames_have_the_golden_bytes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/frames-1.txt");
    if std::env::var_os("FUSION_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, messages()).unwrap();
    }
    assert_eq!(messages(), std::fs::read_to_string(&path).unwrap(), "{}", path.display());
}
