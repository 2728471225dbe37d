//! Prometheus' text format, as <https://prometheus.io/docs/instrumenting/exposition_formats/> has it.

use std::fmt::Write as _;

/// What a metric's value may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rises and falls.
    Gauge,
    /// Only rises, until whatever counts starts anew. Its name ends with `_total`.
    Counter,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// A label's name and value.
pub(crate) type Label<'a> = (&'static str, &'a str);

/// Metrics, written one family after the other.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// A metric with one value.
    pub(crate) fn value(&mut self, kind: Kind, name: &str, help: &str, value: f64) {
        self.family(kind, name, help, [(&[] as &[Label<'_>], value)]);
    }

    /// A metric with one value, where it is known.
    pub(crate) fn known(&mut self, kind: Kind, name: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.value(kind, name, help, value);
        }
    }

    /// A metric with a value for each set of labels.
    pub(crate) fn family<'a>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (&'a [Label<'a>], f64)>,
    ) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing into a string can't fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        for (labels, value) in samples {
            let _ = writeln!(self.text, "{name}{} {}", braces(labels), number(value));
        }
    }

    /// Everything that was written.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

fn braces(labels: &[Label<'_>]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels: Vec<_> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_escaped() {
        let mut exposition = Exposition::default();
        let labels: &[Label<'_>] = &[("path", "C:\\a \"b\"\nc"), ("other", "")];
        exposition.family(Kind::Gauge, "a_metric", "two\nlines \\ one", [(labels, 1.5)]);
        let expected = "# HELP a_metric two\\nlines \\\\ one\n# TYPE a_metric gauge\n\
                        a_metric{path=\"C:\\\\a \\\"b\\\"\\nc\",other=\"\"} 1.5\n";
        assert_eq!(exposition.into_text(), expected);
    }

    #[test]
    fn numbers_are_those_of_the_format() {
        let cases = [
            (0.0, "0"),
            (6_442_450_944.0, "6442450944"),
            (0.02, "0.02"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn what_is_not_known_is_not_written() {
        let mut exposition = Exposition::default();
        exposition.known(Kind::Counter, "a_total", "none", None);
        assert_eq!(exposition.into_text(), "");
    }
}
