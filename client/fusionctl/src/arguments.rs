//! The command line: the single definition that parsing, help and completions come from.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use fusion_calibrations::gate::Arm;
use fusion_calibrations::shape::{Layout, WeightFormat};
use fusion_client::{GateScope, RowRange, WorkloadName};

use crate::exit;

mod bench;
mod doctor;
mod installation;
mod planner;
mod sharing;

pub(crate) use bench::{Bench, Ttft};
pub(crate) use doctor::Doctor;
pub(crate) use installation::{Install, LogLevel, Logs, Rehearsal, Uninstall};
pub(crate) use planner::{Config, History, Pause, Watch};
pub(crate) use sharing::{Export, Import};

const EXAMPLES: &str = "\
Examples:
  fusionctl status
  fusionctl watch
  fusionctl calibrate qwen2.5-0.5b --rows 512
  fusionctl ratios get 512x896x4864
  fusionctl ratios list --json | jq '.ratios[].ratio'
  fusionctl history 512x896x4864 --plot history.svg
  fusionctl pause --for 2h
  fusionctl clients
  fusionctl gates list

";

/// Asks and steers fusiond, the daemon that measures how to share matrix products between GPU and CPU.
#[derive(Debug, Parser)]
#[command(name = "fusionctl", version, max_term_width = 100)]
#[command(after_help = format!("{EXAMPLES}{}", exit::HELP))]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// The daemon's socket, as a full path [env: FUSION_SOCKET] [default: $XDG_RUNTIME_DIR/fusion/fusiond.sock, else
    /// ~/.fusion/run/fusiond.sock]
    // Not clap's env: an empty variable means unset.
    #[arg(long, global = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON with a versioned schema instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to colour; auto also honours NO_COLOR
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// No progress and no remarks on stderr, only errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// When to colour.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Even into a pipe
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the daemon is doing; never starts one
    #[command(after_help = "Without a daemon this says so and exits with 69.")]
    Status,
    /// Look for what stands between this machine and right ratios: each check with what it means and the remedy
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Doctor),
    /// Show the same full-screen, as it changes
    #[command(after_help = "\
Examples:
  fusionctl watch
  fusionctl watch --interval 5

Keys: q quits, p pauses measuring or resumes it, r reads the configuration again. A daemon that goes away is waited for.")]
    Watch(Watch),
    /// Print figures for Prometheus, in its text format
    #[command(after_help = "\
Examples:
  fusionctl metrics
  fusionctl metrics > fusiond.prom                    for node_exporter's textfile collector

Without a daemon this prints 'fusiond_up 0' and exits with 69.")]
    Metrics,
    /// Show the past calibrations of a shape, the newest first, also as a picture
    #[command(after_help = "\
Examples:
  fusionctl history 512x896x4864
  fusionctl history 2048x4096x14336 --format f16 --limit 10
  fusionctl history 512x896x4864 --plot history.png
  fusionctl history 512x896x4864 --json | jq '.estimates[].ratio'")]
    History(History),
    /// Measure nothing without being asked, for a while or until 'fusionctl resume'
    #[command(after_help = "\
Examples:
  fusionctl pause
  fusionctl pause --for 30m
  fusionctl pause --for '1d 12h'

What is being measured without being asked for is ended; 'fusionctl calibrate' measures all the same. A restart of the daemon
forgets the pause.")]
    Pause(Pause),
    /// Go on measuring without being asked
    Resume,
    /// Show what the configuration directory says, or read it again
    #[command(subcommand)]
    Config(Config),
    /// Measure the layers of a model, or single shapes, and show the ratios
    #[command(after_help = "\
Examples:
  fusionctl calibrate qwen2.5-0.5b                    every distinct layer at 512 rows
  fusionctl calibrate llama-3.1-8b --rows 2048 --format f16
  fusionctl calibrate 512x896x4864 2048x4096x14336    rows x inputs x outputs
  fusionctl calibrate qwen2.5-0.5b --remeasure        even if the store knows it

Ctrl-C cancels; what was measured by then is kept. Exits with 1 if a shape can't be measured.")]
    Calibrate(Calibrate),
    /// Show what is known about ratios; measures nothing
    #[command(subcommand)]
    Ratios(Ratios),
    /// Show and steer the gates: which way of running a workload stands, and why
    #[command(subcommand)]
    Gates(Gates),
    /// Show who is attached: busy or idle, where the ratios of its layers come from, and the time saved
    #[command(after_help = "\
Examples:
  fusionctl clients
  fusionctl clients --layers                          each layer, and what answers for it
  fusionctl clients --json | jq '.clients[].saved_ms'")]
    Clients(Clients),
    /// Show the models whose layers are built in; needs no daemon
    #[command(subcommand)]
    Models(Models),
    /// Check, rebuild or export the store; through the daemon if it runs, else with `fusiond store`
    #[command(subcommand)]
    Store(Store),
    /// Write a chip's calibrations to one file, for machines like this one
    #[command(after_help = sharing::EXPORT_EXAMPLES)]
    Export(Export),
    /// Take calibrations over that another machine exported; what was measured here stays
    #[command(after_help = sharing::IMPORT_EXAMPLES)]
    Import(Import),
    /// Find out whether this machine's two units run at once, and what that takes; needs no daemon
    #[command(after_help = "\
This starts 'fusion-worker --probe', the one beside fusionctl or in PATH, or the one that FUSION_WORKER names, and exits as it
does. It takes some 20 seconds and both units: close other programs first.")]
    Probe(Probe),
    /// Compare programs with and without the daemon's help, in one run
    #[command(subcommand)]
    Bench(Bench),
    /// Make the daemon part of this machine: put its programs in place, and give it to launchd or systemd
    #[command(after_help = "\
Examples:
  fusionctl install                                   asks when the daemon shall start
  fusionctl install --at-login
  fusionctl install --on-demand --dry-run

Again after an upgrade: what changed is put in place, and a running daemon goes on as the new one. What was cut short is mended by the same command.
Again with another socket, state or program directory: what the earlier one needed is removed, what it measured stays.
With --at-login it waits up to 20 s for the daemon's first answer, and exits with 69 if none comes: the installation stands all the same.
Without a terminal, --at-login or --on-demand must be given the first time.")]
    Install(Install),
    /// Take the daemon from this machine; what was measured stays unless --purge is given
    #[command(after_help = "\
Examples:
  fusionctl uninstall --dry-run
  fusionctl uninstall
  fusionctl uninstall --purge --yes")]
    Uninstall(Uninstall),
    /// Start the installed daemon now, also after it gave up or was stopped
    Start(Rehearsal),
    /// Stop the daemon and wait until it is gone: until 'fusionctl start' or the next login
    Stop(Rehearsal),
    /// Write the manual: a page for every command
    #[command(after_help = "Example:\n  fusionctl man ~/.local/share/man/man1")]
    Man {
        /// The directory; made if it isn't there
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
    /// Stop the installed daemon and start it again
    Restart(Rehearsal),
    /// Print what the daemon logged; needs none that runs
    #[command(after_help = "\
Examples:
  fusionctl logs -f
  fusionctl logs -n 20
  fusionctl logs --crashes                            panics, and the last words of what ended it")]
    Logs(Logs),
    /// Change what the daemon logs, while it runs
    #[command(after_help = "\
Examples:
  fusionctl log-level debug
  fusionctl log-level 'fusiond::jobs=trace,info'
  fusionctl log-level --reset")]
    LogLevel(LogLevel),
    /// Print a completion script
    #[command(after_help = "\
Examples:
  fusionctl completions bash > ~/.local/share/bash-completion/completions/fusionctl
  fusionctl completions zsh > ~/.zfunc/_fusionctl
  fusionctl completions fish > ~/.config/fish/completions/fusionctl.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How weights are kept.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Weights {
    /// How a weight is encoded: f32, f16, bf16, or qBITS/GROUP such as q4/64
    #[arg(long, default_value = "f32", value_parser = str::parse::<WeightFormat>)]
    pub(crate) format: WeightFormat,
    /// Order of the weights in memory: nk (outputs x inputs, as nn.Linear keeps them) or kn
    #[arg(long, default_value = "nk", value_parser = str::parse::<Layout>)]
    pub(crate) layout: Layout,
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Models (see 'fusionctl models list') or shapes, as rows x inputs x outputs
    #[arg(required = true, value_name = "MODEL|MxKxN")]
    pub(crate) targets: Vec<String>,
    /// Rows that go through the layers of a model; a shape names its own
    #[arg(long, default_value = "512", allow_negative_numbers = true)]
    pub(crate) rows: i64,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Measure even what the store knows
    #[arg(long)]
    pub(crate) remeasure: bool,
}

/// How to probe.
#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// Two CPU streams even where there is a GPU: a development pair, which says nothing about the GPU
    #[arg(long)]
    pub(crate) development: bool,
}

/// What is known about ratios.
#[derive(Debug, Subcommand)]
pub(crate) enum Ratios {
    /// Every estimate in the store
    List,
    /// The ratio for a shape under the present conditions
    #[command(after_help = "Example:\n  fusionctl ratios get 512x896x4864 --format f16")]
    Get(OneShape),
    /// How that ratio comes about: what was considered, measured and rejected
    #[command(after_help = "Example:\n  fusionctl ratios explain 512x896x4864")]
    Explain(OneShape),
    /// Draw it: the points measured, both units' lines, stock and the choice
    #[command(after_help = "\
Examples:
  fusionctl ratios plot 2048x4096x14336 --format f16 -o ratio.png
  fusionctl ratios plot 512x896x4864 > ratio.svg")]
    Plot(Plot),
}

/// What to draw, and where to.
#[derive(Debug, Args)]
pub(crate) struct Plot {
    #[command(flatten)]
    pub(crate) shape: OneShape,
    /// File to write, ending with .svg or .png; replaced if it exists [default: SVG to stdout]
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// A shape.
#[derive(Debug, Args)]
pub(crate) struct OneShape {
    /// Rows x inputs x outputs
    #[arg(value_name = "MxKxN")]
    pub(crate) shape: String,
    #[command(flatten)]
    pub(crate) weights: Weights,
}

/// Whom to show.
#[derive(Debug, Args)]
pub(crate) struct Clients {
    /// Show each client's layers, too
    #[arg(long)]
    pub(crate) layers: bool,
}

/// The gates of all attached processes.
#[derive(Debug, Subcommand)]
pub(crate) enum Gates {
    /// Every region that is known: its rows, the arm that stands, what each arm takes, and locks
    #[command(
        after_help = "Examples:\n  fusionctl gates list\n  fusionctl gates list 'llama prefill' --json"
    )]
    List {
        /// Only this workload
        #[arg(value_name = "WORKLOAD", value_parser = str::parse::<WorkloadName>)]
        workload: Option<WorkloadName>,
    },
    /// Everything that is known of a workload, in words: each arm, and why the one that stands does
    #[command(after_help = "Example:\n  fusionctl gates show 'llama prefill' --rows 2048")]
    Show(GateCalls),
    /// Forget what was learned of a workload, here and in every attached process; asks first
    #[command(after_help = "\
Examples:
  fusionctl gates reset 'llama prefill'
  fusionctl gates reset 'llama prefill' --rows 2048 --yes

What its first exploring calls cost stays remembered: they are not free again.")]
    Reset {
        #[command(flatten)]
        calls: GateCalls,
        /// Don't ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Decide for the gates: always this arm, until it is unlocked
    #[command(after_help = "\
Examples:
  fusionctl gates lock 'llama prefill' eager
  fusionctl gates lock 'llama prefill' split --rows 2048

A lock for all rows replaces those for some. A process that can't run the arm goes on as before.")]
    Lock {
        #[command(flatten)]
        calls: GateCalls,
        /// How its calls are executed
        arm: ArmWord,
    },
    /// Let the gates decide again
    #[command(after_help = "\
Example:
  fusionctl gates unlock 'llama prefill'

Without --rows every lock of the workload goes.")]
    Unlock(GateCalls),
}

/// Calls of a workload.
#[derive(Debug, Args)]
pub(crate) struct GateCalls {
    /// The workload, as 'fusionctl gates list' names it
    #[arg(value_name = "WORKLOAD", value_parser = str::parse::<WorkloadName>)]
    workload: WorkloadName,
    /// Only calls of about so many rows: those that share a region with N [default: all rows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
}

impl GateCalls {
    pub(crate) fn scope(&self) -> GateScope {
        GateScope { workload: self.workload.clone(), rows: self.rows.map(RowRange::around) }
    }
}

/// An arm.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ArmWord {
    /// Rows split between both units
    Split,
    /// Stock, through the framework's compiler
    Compiled,
    /// Stock, as written
    Eager,
}

impl From<ArmWord> for Arm {
    fn from(word: ArmWord) -> Self {
        match word {
            ArmWord::Split => Self::Split,
            ArmWord::Compiled => Self::Compiled,
            ArmWord::Eager => Self::Eager,
        }
    }
}

/// The built-in models.
#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// Every model
    List,
    /// The layers of one model
    #[command(after_help = "Example:\n  fusionctl models show qwen2.5-0.5b")]
    Show {
        /// Its name; case, and the publisher before a slash, don't matter
        name: String,
    },
}

/// Care for the store.
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Read everything and say what is wrong; changes nothing
    Verify,
    /// Build the index anew from the record files; the old one is set aside, not deleted
    Rebuild {
        /// Don't ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Write every current record to a new directory
    #[command(after_help = "Example:\n  fusionctl store export ~/fusion-records")]
    Export {
        /// A directory that doesn't exist yet
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Arguments::command().debug_assert();
    }
}
