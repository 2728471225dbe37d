//! `fusionctl watch` on a real terminal, by way of script(1): keys, ends, and a daemon that goes away.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runner::run;
use support::{Fake, Script};

/// Nothing here takes longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How a terminal is told to show the other screen, and to go back.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const ROWS: usize = 30;
const COLUMNS: usize = 100;
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// A `fusionctl watch` whose terminal script(1) makes.
struct Watch {
    script: Child,
    shown: Arc<Mutex<String>>,
}

impl Watch {
    /// `None` where there is no script(1) that knows these flags: there these tests say nothing.
    fn start(socket: &Path) -> Option<Self> {
        let known = Command::new("script").args(["-qec", "true", "/dev/null"]).stdin(Stdio::null()).output();
        if !known.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let program = env!("CARGO_BIN_EXE_fusionctl");
        // The size, since a pipe has none; the process's number, so that it can be sent signals; its exit code.
        let line = format!(
            "stty rows {ROWS} columns {COLUMNS}; {program} watch --interval 0.1 & echo \"[pid $!]\"; fg >/dev/null; echo \"[exit $?]\""
        );
        let mut script = Command::new("script")
            .args(["-qec", &format!("bash -mc '{line}'"), "/dev/null"])
            .env("FUSION_SOCKET", socket)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut stdout, seen) = (script.stdout.take().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Some(Self { script, shown })
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn wait_for(&self, what: &str, mut holds: impl FnMut(&str) -> bool) {
        let start = Instant::now();
        while !holds(&self.shown()) {
            assert!(start.elapsed() < PATIENCE, "{what}:\n{}", screen(&self.shown()));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until this is on the screen.
    fn shows(&self, text: &str) {
        self.wait_for(text, |shown| screen(shown).contains(text));
    }

    /// Waits until this was written, outside of the screen.
    fn says(&self, text: &str) {
        self.wait_for(text, |shown| shown.contains(text));
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn pid(&self) -> String {
        self.says("[pid ");
        let shown = self.shown();
        shown.split_once("[pid ").unwrap().1.split_once(']').unwrap().0.to_owned()
    }

    /// The exit code, once the terminal is as it was.
    fn ends_with(&self, code: i32) {
        self.says(&format!("[exit {code}]"));
        let shown = self.shown();
        let (before, after) = shown.rsplit_once(LEAVE).unwrap();
        assert!(before.contains(ENTER), "{shown:?}");
        assert!(!after.contains(ENTER) && shown.rfind(SHOW_CURSOR) > shown.rfind("\u{1b}[?25l"), "{shown:?}");
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// What a terminal of this size shows of `written`: text goes where the cursor was put, everything else is about looks.
fn screen(written: &str) -> String {
    let mut cells = vec![[' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut characters = written.split_once(ENTER).map_or("", |(_, after)| after).chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = character;
            }
            column += 1;
            continue;
        }
        let mut code = String::new();
        for character in characters.by_ref().skip(1) {
            code.push(character);
            if character.is_ascii_alphabetic() {
                break;
            }
        }
        if let Some((y, x)) = code.strip_suffix('H').and_then(|place| place.split_once(';')) {
            (row, column) = (y.parse::<usize>().unwrap() - 1, x.parse::<usize>().unwrap() - 1);
        }
    }
    cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}

#[test]
fn without_a_terminal_it_says_so_and_is_2() {
    let nowhere = Path::new("/nonexistent/s");
    let piped = run(nowhere, &["watch"]);
    assert_eq!((piped.code, piped.stdout.as_str()), (2, ""));
    assert!(
        piped.stderr.contains("there is no terminal to watch on: 'fusionctl status'"),
        "{}",
        piped.stderr
    );
    let json = run(nowhere, &["watch", "--json"]);
    assert_eq!((json.code, json.stdout.as_str()), (2, ""));
    assert!(json.stderr.contains("'fusionctl status --json'"), "{}", json.stderr);
}

#[test]
fn keys_pause_resume_reload_and_quit() {
    let fake = Fake::start(Script::default());
    let Some(mut watch) = Watch::start(&fake.path()) else { return };
    watch.shows("process 4242 answers");
    watch.press("p");
    watch.shows("measuring is paused");
    assert_eq!(*fake.seen.pause.lock().unwrap(), Some(0));
    watch.press("p");
    watch.shows("measuring goes on");
    assert_eq!(fake.seen.resumed.load(Ordering::SeqCst), 1);
    watch.press("r");
    watch.wait_for("a reload", |_| fake.seen.reloaded.load(Ordering::SeqCst) == 1);
    watch.press("q");
    watch.ends_with(0);
}

#[test]
fn control_c_leaves_too() {
    let fake = Fake::start(Script::default());
    let Some(mut watch) = Watch::start(&fake.path()) else { return };
    watch.shows("process 4242 answers");
    watch.press("\u{3}");
    watch.ends_with(0);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let fake = Fake::start(Script::default());
        let Some(watch) = Watch::start(&fake.path()) else { return };
        watch.shows("process 4242 answers");
        assert!(Command::new("kill").args([signal, &watch.pid()]).status().unwrap().success());
        watch.ends_with(code);
    }
}

#[test]
fn a_daemon_that_goes_away_is_waited_for() {
    let place = support::directory();
    let socket = place.path().join("s");
    let Some(mut watch) = Watch::start(&socket) else { return };
    watch.shows("no answer");
    let fake = Fake::start(Script::default());
    std::os::unix::fs::symlink(fake.path(), &socket).unwrap();
    watch.shows("process 4242 answers");
    drop(fake);
    watch.shows("as it was seen last");
    watch.press("q");
    watch.ends_with(0);
}
