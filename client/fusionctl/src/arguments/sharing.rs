//! Calibrations on their way to and from other machines.

use clap::{Args, ValueHint};

use crate::location::{Existing, Location};

pub(crate) const EXPORT_EXAMPLES: &str = "\
Examples:
  fusionctl export m4-pro.fcals
  fusionctl export s3://team-bucket/fusion/m4-pro.fcals
  fusionctl export all.fcals --chip apple-m4-pro.20gpu.24gib.mac16-8.active.gpu+cpu --replace

Credentials come from the environment: AWS_ACCESS_KEY_ID, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME and their like.";

pub(crate) const IMPORT_EXAMPLES: &str = "\
Examples:
  fusionctl import m4-pro.fcals
  fusionctl import https://example.org/m4-pro.fcals
  fusionctl import m4-max.fcals --as-prior             another chip's, as first guesses

What was measured on this machine stays, and answers first. An import that was interrupted is finished by the same command.";

/// What to export, and where to.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A file, or an address: s3://, gs://, az://, https://, http://
    #[arg(value_name = "FILE|URL", value_parser = str::parse::<Location>, value_hint = ValueHint::FilePath)]
    pub(crate) location: Location,
    /// The chip whose calibrations to export, by its key, as 'fusionctl ratios list --json' names it [default: this machine's]
    #[arg(long, value_name = "KEY")]
    pub(crate) chip: Option<String>,
    /// Replace what lies there
    #[arg(long)]
    replace: bool,
}

impl Export {
    pub(crate) fn existing(&self) -> Existing {
        if self.replace { Existing::Replace } else { Existing::Keep }
    }
}

/// What to import, and as what.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A file, or an address: s3://, gs://, az://, https://, http://
    #[arg(value_name = "FILE|URL", value_parser = str::parse::<Location>, value_hint = ValueHint::FilePath)]
    pub(crate) location: Location,
    /// As first guesses, trusted less than anything else: then also from another chip
    #[arg(long)]
    pub(crate) as_prior: bool,
}
