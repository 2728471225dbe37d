//! The real worker, on real MLX, over real pipes.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use fusion_frames::{Hello, PROTOCOL, Reply, Request, WireShape};

/// A running worker; a test that fails leaves none behind, since a dropped pipe ends it.
struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    hello: Hello,
}

impl Worker {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args).spawn().unwrap();
        let (stdin, mut stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let Some(Reply::Hello(hello)) = fusion_frames::read(&mut stdout).unwrap() else { panic!("no hello") };
        Self { child, stdin, stdout, hello }
    }

    fn ask(&mut self, request: &Request) -> Reply {
        fusion_frames::write(self.stdin.as_mut().unwrap(), request).unwrap();
        fusion_frames::read(&mut self.stdout).unwrap().unwrap()
    }

    fn prepare(&mut self, rows: u32, inputs: u32, outputs: u32, format: &str) -> Reply {
        let (format, layout) = (format.to_owned(), "nk".to_owned());
        self.ask(&Request::Prepare(WireShape { rows, inputs, outputs, format, layout }))
    }

    /// Closes the worker's standard input; returns its status, and what it wrote after the last reply.
    fn close(mut self) -> (ExitStatus, Vec<u8>) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fusion-worker"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // It has to restart itself to get one BLAS thread and large pages.
    command.env_remove("OPENBLAS_NUM_THREADS").env_remove("GLIBC_TUNABLES");
    command
}

fn development() -> Worker {
    Worker::start(&["--pair", "development"])
}

fn reason(reply: Reply) -> String {
    match reply {
        Reply::Refused { reason } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_whole_conversation() {
    let mut worker = development();
    assert_eq!(worker.hello.protocol, PROTOCOL);
    assert_eq!(worker.hello.pair, "development");
    assert!(worker.hello.mlx_version.starts_with("0.32."), "{:?}", worker.hello);
    assert!(
        matches!(worker.prepare(128, 64, 96, "f32"), Reply::Prepared { active_bytes } if active_bytes > 0)
    );

    let Reply::Timed(stock) = worker.ask(&Request::Stock) else { panic!("stock was not timed") };
    assert!(stock.total_ns > 0 && stock.finish.is_none());

    for secondary_first in [false, true] {
        let reply = worker.ask(&Request::Split { secondary_rows: 40, secondary_first });
        let Reply::Timed(split) = reply else { panic!("split was not timed: {reply:?}") };
        let finish = split.finish.unwrap();
        assert!(finish.primary <= split.total_ns && finish.secondary <= split.total_ns);
    }
    let Reply::Checked { relative_error } = worker.ask(&Request::Check { secondary_rows: 40 }) else {
        panic!("split was not checked")
    };
    assert!(relative_error < 1e-5, "{relative_error:e}");

    let (status, rest) = worker.close();
    assert!(status.success() && rest.is_empty(), "{status}, {rest:?}");
}

#[test]
fn what_cannot_be_done_is_refused_and_the_worker_lives_on() {
    let mut worker = development();
    assert!(reason(worker.ask(&Request::Stock)).contains("Prepare first"));
    assert!(reason(worker.prepare(0, 64, 64, "f32")).contains("rows is 0"));
    assert!(reason(worker.prepare(4, 64, 64, "f8")).contains("f8"));
    // MLX itself refuses: 32 inputs are no whole group of 64.
    assert!(reason(worker.prepare(4, 32, 64, "q4/64")).contains("MLX failed"));

    assert!(matches!(worker.prepare(4, 64, 64, "f32"), Reply::Prepared { .. }));
    let split = |secondary_rows| Request::Split { secondary_rows, secondary_first: false };
    assert!(reason(worker.ask(&split(5))).contains("5 rows"));
    assert!(reason(worker.ask(&split(0))).contains("at least 1 row"));
    assert!(matches!(worker.ask(&split(4)), Reply::Timed(_)));
}

#[test]
fn a_malformed_request_is_refused_and_noise_ends_the_worker() {
    let mut worker = development();
    worker.stdin.as_mut().unwrap().write_all(&[4, 0, 0, 0, 99, 0, 0, 0]).unwrap();
    let reply: Reply = fusion_frames::read(&mut worker.stdout).unwrap().unwrap();
    assert!(reason(reply).contains("can't be read"));

    worker.stdin.as_mut().unwrap().write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(worker.close().0.code(), Some(1));
}

#[test]
fn a_shape_that_does_not_fit_is_refused() {
    let mut worker = Worker::start(&["--pair", "development", "--memory-limit-bytes", "100000000"]);
    assert!(matches!(worker.prepare(64, 256, 256, "f32"), Reply::Prepared { .. }));
    let why = reason(worker.prepare(8192, 8192, 8192, "f32"));
    assert!(why.contains("does not fit into memory") && why.contains("100000000"), "{why}");
    // A refusal before anything was done leaves the earlier operands in place.
    assert!(matches!(worker.ask(&Request::Stock), Reply::Timed(_)));
}

/// The largest shape that passes the check must also work under the cap that the system enforces.
#[test]
fn what_is_said_to_fit_does_fit() {
    for (limit, rows, inputs, outputs, format) in [
        (60_u64 << 20, 1024, 1024, 2048, "f32"),
        (70 << 20, 64, 2048, 4096, "f16"),
        (40 << 20, 2048, 1024, 1024, "f32"),
    ] {
        let mut worker =
            Worker::start(&["--pair", "development", "--memory-limit-bytes", &limit.to_string()]);
        match worker.prepare(rows, inputs, outputs, format) {
            Reply::Prepared { .. } => assert!(matches!(worker.ask(&Request::Stock), Reply::Timed(_))),
            Reply::Refused { reason } => assert!(reason.contains("does not fit"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_system_enforces_the_memory_limit() {
    let limit = |worker: &Worker| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", worker.child.id())).unwrap();
        limits.lines().find(|line| line.starts_with("Max address space")).unwrap().to_owned()
    };
    assert!(limit(&development()).contains("unlimited"));
    let capped = limit(&Worker::start(&["--memory-limit-bytes", "100000000"]));
    assert!(!capped.split_whitespace().nth(3).unwrap().contains("unlimited"), "{capped}");
}

#[test]
fn closing_the_pipe_before_any_request_is_a_quiet_end() {
    let (status, rest) = development().close();
    assert!(status.success() && rest.is_empty());
}

#[test]
fn the_asymmetric_pair_tells_itself_apart_but_not_its_factor() {
    let pair = |factor| {
        let worker = Worker::start(&["--pair", "asymmetric", "--secondary-work-factor", factor]);
        assert!(!worker.hello.units.contains(factor));
        worker.hello.pair.clone()
    };
    assert!(pair("2.5").starts_with("asymmetric-"));
    assert_ne!(pair("2.5"), pair("3.5"));
}

#[test]
fn wrong_arguments_exit_with_2() {
    let output = command(&["--pair", "asymmetric"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--secondary-work-factor"));
}

#[test]
fn the_self_test_speaks_to_people() {
    let output = command(&["--pair", "development", "--self-test"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("development pair") && text.contains("times as fast"),
        "{text}"
    );
}
