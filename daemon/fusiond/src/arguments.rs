//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use fusion_proto::endpoint::SOCKET_VARIABLE;
use fusion_proto::state::{CONFIGURATION_VARIABLE, STATE_VARIABLE};
use fusiond::activation::Supervisor;
use fusiond::settings::WORKER_VARIABLE;

const HELP: &str = "\
Examples:
  fusiond                        serve in the foreground until interrupted
  fusiond --state-dir ~/try --socket ~/try/run/x.sock
  fusiond --machine recorded:m4-pro    answer from published measurements, without MLX
  fusiond store verify           look after the store while no daemon runs

Exit codes: 0 ended as asked, 65 the store has faults, 70 internal, 73 can't create a file, 74 the store failed,
75 already running, 77 another user's directory, 78 configuration, 79 the program was replaced: start it again.
Under launchd or systemd also 0 after five failed starts in a row, so that it isn't started for ever.
Logs: FUSION_LOG=debug, or 'fusionctl log-level debug'.";

/// Measures and serves the share of rows that the CPU should take of a matrix product.
#[derive(Debug, Parser)]
#[command(name = "fusiond", version, after_help = HELP)]
pub(crate) struct Arguments {
    /// Unix socket to listen on [default: $XDG_RUNTIME_DIR/fusion/fusiond.sock, else ~/.fusion/run/fusiond.sock]
    #[arg(long, env = SOCKET_VARIABLE, global = true, hide_env_values = true)]
    pub(crate) socket: Option<PathBuf>,
    /// Directory for calibrations and logs [default: ~/.local/state/fusion, on macOS ~/Library/Application Support/fusion]
    #[arg(long, env = STATE_VARIABLE, global = true, hide_env_values = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Directory of the configuration: config.toml, shapes/, models/ [default: ~/.config/fusion; with --state-dir 'config' in it]
    #[arg(long, env = CONFIGURATION_VARIABLE, hide_env_values = true)]
    pub(crate) config_dir: Option<PathBuf>,
    /// Whose calls to time: recorded:NAME or model:NAME for published data or a model of a chip [default: this machine, by the worker]
    #[arg(long, value_name = "MACHINE")]
    pub(crate) machine: Option<String>,
    /// What tells the state of the machine: system, or scripted:FILE for what a TOML file says at each look [default: system; none with a machine that is data]
    #[arg(long, value_name = "SENSORS")]
    pub(crate) sensors: Option<String>,
    /// File that the one measuring daemon of a machine locks, whichever user's it is [default: /tmp/fusiond-measuring.lock]
    #[arg(long, value_name = "PATH", env = "FUSION_MEASURING_LOCK", hide_env_values = true)]
    pub(crate) measuring_lock: Option<PathBuf>,
    /// Worker program [default: fusion-worker beside fusiond]
    #[arg(long, env = WORKER_VARIABLE, hide_env_values = true)]
    pub(crate) worker: Option<PathBuf>,
    /// Argument for the worker; may be repeated
    #[arg(long = "worker-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) worker_arguments: Vec<OsString>,
    /// Seconds a worker may take for one answer before it is ended
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) worker_limit: u64,
    /// launchd starts this: take its socket if it holds one, count failed starts and give up after five, end when the program was replaced
    #[arg(long, conflicts_with = "systemd")]
    launchd: bool,
    /// systemd starts this: the same; said by LISTEN_PID and LISTEN_FDS, too, as sd_listen_fds(3) has it
    #[arg(long)]
    systemd: bool,
    /// What to do instead of serving
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Arguments {
    /// Who starts this process again.
    pub(crate) fn supervisor(&self) -> Option<Supervisor> {
        match (self.launchd, self.systemd) {
            (true, _) => Some(Supervisor::Launchd),
            (_, true) => Some(Supervisor::Systemd),
            _ => Supervisor::from_environment(),
        }
    }
}

/// What a command line says that can't be read as a whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Who starts this process again.
    pub(crate) supervisor: Option<Supervisor>,
    /// The socket.
    pub(crate) socket: Option<PathBuf>,
}

impl Unread {
    /// This process's.
    pub(crate) fn from_environment() -> Self {
        let mut unread = Self::of(std::env::args_os().skip(1));
        unread.supervisor = unread.supervisor.or_else(Supervisor::from_environment);
        unread
    }

    fn of(words: impl IntoIterator<Item = OsString>) -> Self {
        let mut unread = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--launchd") => unread.supervisor = Some(Supervisor::Launchd),
                Some("--systemd") => unread.supervisor = Some(Supervisor::Systemd),
                Some("--socket") => unread.socket = words.next().map(PathBuf::from),
                Some(word) => {
                    if let Some(path) = word.strip_prefix("--socket=") {
                        unread.socket = Some(path.into());
                    }
                }
                None => {}
            }
        }
        unread
    }
}

/// What is wrong with a command line, without what clap adds for a terminal.
pub(crate) fn in_a_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let words = words.join(" ");
    let what = words.strip_prefix("error: ").unwrap_or(&words);
    format!("its command line can't be read, {what}; 'fusionctl install' registers the daemon anew")
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look after the store while no daemon runs
    #[command(subcommand)]
    Store(StoreCommand),
    /// Write the manual into a directory, which is made if it isn't there
    #[command(hide = true)]
    Man {
        /// The directory
        directory: PathBuf,
    },
    /// Print what a shell needs to complete this program's arguments
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How the result is printed.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print JSON, as fusionctl does
    #[arg(long)]
    pub(crate) json: bool,
}

/// Care for the store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read everything, change nothing
    Verify(Output),
    /// Build the index anew from the record files; the old one is set aside
    Rebuild(Output),
    /// Write every current record into a new directory
    Export {
        /// The directory; it must not exist yet
        path: PathBuf,
        /// How the result is printed
        #[command(flatten)]
        output: Output,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(words: &[&str]) -> Unread {
        Unread::of(words.iter().map(OsString::from))
    }

    #[test]
    fn of_an_unreadable_line_manager_and_socket_are_read() {
        let socket = Some(PathBuf::from("/run/s"));
        for words in [&["--launchd", "--gone", "--socket", "/run/s"][..], &["--socket=/run/s", "--launchd"]] {
            assert_eq!(
                unread(words),
                Unread { supervisor: Some(Supervisor::Launchd), socket: socket.clone() }
            );
        }
        assert_eq!(
            unread(&["--systemd", "--socket"]),
            Unread { supervisor: Some(Supervisor::Systemd), socket: None }
        );
        assert_eq!(unread(&["--gone"]), Unread::default());
    }

    #[test]
    fn what_is_wrong_with_it_is_one_line() {
        let error = Arguments::try_parse_from(["fusiond", "--launchd", "--gone"]).unwrap_err();
        let line = in_a_line(&error);
        assert!(
            line.contains("unexpected argument '--gone' found") && line.contains("fusionctl install"),
            "{line}"
        );
        assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
    }
}
