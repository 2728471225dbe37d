//! What `fusionctl metrics` prints, read by a strict parser of Prometheus' text format.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use fusion_client::v1;
use runner::run;
use support::{Fake, Hung, Script, canned};

/// Metrics with one name.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    /// By their labels.
    samples: BTreeMap<Vec<(String, String)>, f64>,
}

/// Reads the text format; panics at whatever it doesn't allow, or our names should not have.
fn parse(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut open = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            open = metric_name(name).to_owned();
            let family = Family { help: unescaped(help, false), ..Family::default() };
            assert!(families.insert(open.clone(), family).is_none(), "{name} is there twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let family = families.get_mut(name).unwrap();
            assert!(name == open && family.kind.is_empty() && family.samples.is_empty(), "{line}");
            assert!(matches!(kind, "gauge" | "counter"), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            kind.clone_into(&mut family.kind);
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&name).unwrap();
            assert!(name == open && !family.kind.is_empty(), "{line}");
            assert!(family.samples.insert(labels, value).is_none(), "{line} is there twice");
        }
    }
    for (name, family) in &families {
        assert!(!family.samples.is_empty() && family.help.ends_with('.'), "{name}: {family:?}");
    }
    families
}

fn metric_name(name: &str) -> &str {
    let mut characters = name.chars();
    assert!(characters.next().unwrap().is_ascii_lowercase(), "{name}");
    assert!(characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
    name
}

fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let (head, labels, value) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, value) = labels(rest);
            (name, labels, value)
        }
        None => {
            let (name, value) = line.split_once(' ').unwrap();
            (name, Vec::new(), value)
        }
    };
    let number = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        // Rust reads more words for infinity than Prometheus does.
        text => {
            assert!(text.starts_with(|c: char| c.is_ascii_digit() || c == '-'), "{line}");
            text.parse().unwrap()
        }
    };
    (metric_name(head).to_owned(), labels, number)
}

/// Labels up to the closing brace, and the value behind it.
fn labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap();
        let end = quote(after);
        labels.push((metric_name(name).to_owned(), unescaped(&after[..end], true)));
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix("} ").unwrap()),
        }
    }
}

/// Where the closing quote is.
fn quote(text: &str) -> usize {
    let mut escaped = false;
    text.char_indices()
        .find(|(_, c)| {
            let closes = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            closes
        })
        .unwrap()
        .0
}

fn unescaped(text: &str, quoted: bool) -> String {
    let (mut plain, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next().unwrap() {
                '\\' => '\\',
                'n' => '\n',
                '"' if quoted => '"',
                other => panic!("\\{other} is no escape in {text}"),
            },
            other => other,
        });
    }
    plain
}

fn metrics(script: Script) -> BTreeMap<String, Family> {
    let fake = Fake::start(script);
    let run = run(&fake.path(), &["metrics"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    parse(&run.stdout)
}

fn value(families: &BTreeMap<String, Family>, name: &str) -> Option<f64> {
    families.get(name).map(|family| {
        assert_eq!(family.samples.len(), 1, "{name}");
        *family.samples.get(&Vec::new()).unwrap()
    })
}

#[test]
fn every_figure_has_its_unit_and_its_value() {
    let mut script = Script::default();
    script.readings.as_mut().unwrap().throttle_events = Some(17);
    let families = metrics(script);
    for (name, expected) in [
        ("fusiond_up", 1.0),
        ("fusiond_start_time_seconds", canned::THEN as f64 / 1000.0),
        ("fusiond_draining", 0.0),
        ("fusiond_worker_ok", 1.0),
        ("fusiond_store_ok", 0.0),
        ("fusiond_configuration_ok", 1.0),
        ("fusiond_estimates", 3.0),
        ("fusiond_current_estimates", 2.0),
        ("fusiond_stale_estimates", 1.0),
        ("fusiond_wanted_shapes", 5.0),
        ("fusiond_stale_shapes", 1.0),
        ("fusiond_troubled_subjects", 1.0),
        ("fusiond_planner_credit_seconds", 0.4),
        ("fusiond_planner_duty_ratio", 0.01),
        ("fusiond_planner_paused", 0.0),
        ("fusiond_jobs_waiting", 1.0),
        ("fusiond_job_running", 1.0),
        ("fusiond_job_shapes", 4.0),
        ("fusiond_job_done_shapes", 1.0),
        ("fusiond_clients_attached", 2.0),
        ("fusiond_clients_busy", 1.0),
        ("fusiond_saved_seconds", 12.024),
        ("fusiond_split_calls", 494.0),
        ("fusiond_available_memory_bytes", 6_442_450_944.0),
        ("fusiond_cpu_pressure_ratio", 0.02),
        ("fusiond_throttle_events_total", 17.0),
    ] {
        assert_eq!(value(&families, name), Some(expected), "{name}");
    }
    let build = &families["fusiond_build_info"].samples;
    let labels = [("version", fusion_client::VERSION), ("protocol", "1")];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(build.iter().next(), Some((&labels.to_vec(), &1.0)));
    // No sensor says.
    assert!(!families.contains_key("fusiond_gpu_busy_ratio"));
}

#[test]
fn of_each_kind_of_condition_one_state_holds() {
    let families = metrics(Script::default());
    let mut holding = BTreeMap::new();
    let mut states = BTreeMap::new();
    for (labels, value) in &families["fusiond_conditions"].samples {
        let (kind, state) = (&labels[0], &labels[1]);
        assert_eq!((kind.0.as_str(), state.0.as_str()), ("kind", "state"));
        *states.entry(kind.1.clone()).or_insert(0) += 1;
        if *value == 1.0 {
            assert_eq!(holding.insert(kind.1.clone(), state.1.clone()), None);
        } else {
            assert_eq!(*value, 0.0);
        }
    }
    let pair = |(kind, state): (&str, &str)| (kind.to_owned(), state.to_owned());
    let expected =
        [("thermal", "nominal"), ("memory", "normal"), ("power", "ac"), ("low_power_mode", "unknown")];
    assert_eq!(holding, expected.map(pair).into());
    let counts = [("thermal", 5), ("memory", 4), ("power", 3), ("low_power_mode", 3)];
    assert_eq!(states, counts.map(|(kind, count)| (kind.to_owned(), count)).into());
}

#[test]
fn an_older_daemon_has_the_figures_that_it_tells() {
    let families = metrics(Script { summary: None, ..Script::old() });
    assert_eq!(value(&families, "fusiond_estimates"), Some(3.0));
    for name in ["fusiond_planner_credit_seconds", "fusiond_clients_attached", "fusiond_configuration_ok"] {
        assert!(!families.contains_key(name), "{name}");
    }
}

#[test]
fn labels_and_figures_of_any_kind_are_written_so_that_they_are_read() {
    let mut planner = canned::planner();
    (planner.credit_ms, planner.duty) = (f64::NEG_INFINITY, f64::NAN);
    let version = "1\"2\\3\n4";
    let families = metrics(Script { version, planner: Some(planner), ..Script::default() });
    let (labels, _) = families["fusiond_build_info"].samples.iter().next().unwrap();
    assert_eq!(labels[0].1, version);
    assert_eq!(value(&families, "fusiond_planner_credit_seconds"), Some(f64::NEG_INFINITY));
    assert!(value(&families, "fusiond_planner_duty_ratio").unwrap().is_nan());
}

#[test]
fn without_a_daemon_up_is_0_and_the_exit_code_69() {
    let hung = Hung::start();
    let hung = hung.socket();
    for socket in [Path::new("/nonexistent/s"), hung.as_path()] {
        let run = run(socket, &["metrics"]);
        assert_eq!(run.code, 69);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        let families = parse(&run.stdout);
        assert_eq!((families.len(), value(&families, "fusiond_up")), (1, Some(0.0)));
    }
}

#[test]
fn a_machine_with_all_sensors_tells_all() {
    let readings = v1::Readings {
        swapped_in_pages: Some(1 << 40),
        gpu_busy: Some(1.0),
        cpu_speed_limit: Some(0.5),
        ..canned::readings()
    };
    let families = metrics(Script { readings: Some(readings), ..Script::default() });
    assert_eq!(value(&families, "fusiond_swapped_in_pages_total"), Some(1_099_511_627_776.0));
    assert_eq!(value(&families, "fusiond_gpu_busy_ratio"), Some(1.0));
    assert_eq!(value(&families, "fusiond_cpu_speed_limit_ratio"), Some(0.5));
}
