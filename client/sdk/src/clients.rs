//! Who is attached, as types that hold only what can be.

use fusion_calibrations::engine::Engine;
use fusion_calibrations::lookup::Source;
use fusion_calibrations::shape::{Layer, Shape};
use fusion_proto::{WireError, v1};

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientActivity {
    /// Nothing.
    Idle,
    /// Products: nothing may be measured.
    Busy,
}

/// An attached process.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachedClient {
    /// Its number among the clients of this daemon.
    pub number: u64,
    /// Its process.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
    /// Version of its library.
    pub version: String,
    /// What it does.
    pub activity: ClientActivity,
    /// When it attached, in ms since 1970 (UTC).
    pub attached_at_unix_ms: u64,
    /// Layers that it named.
    pub layers: u32,
    /// How many of these each source answers for, the nearest source first; empty if the daemon doesn't say.
    pub sources: Vec<(Source, u32)>,
    /// Observations that the daemon took from it.
    pub observations: u64,
    /// Its engine, where it differs from the worker's.
    pub other_engine: Option<Engine>,
    /// What it named to measure with its engine, if it did.
    pub worker: Option<NamedWorker>,
    /// Whether it holds the lease to explore.
    pub explores: bool,
    /// Time that its split calls took less than stock's reference since it attached, in ms; negative if they took more.
    pub saved_ms: f64,
    /// The split calls behind that.
    pub split_calls: u64,
}

/// A worker that a client named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWorker {
    /// What the daemon starts.
    pub program: String,
    /// Why it doesn't; `None` if it does.
    pub unused_because: Option<String>,
}

fn said(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// What answers for a client's layer under the present conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedLayer {
    /// The layer, with the rows that this holds for.
    pub shape: Shape,
    /// Which stored knowledge answers.
    pub source: Source,
    /// Where the lines come from that the client has; `Unspecified` if it has none.
    pub provenance: v1::Provenance,
    /// Why it should be measured anew; `None` if it is fresh.
    pub stale_reason: Option<String>,
}

fn source(wire: v1::Source, value: i32) -> Result<Source, WireError> {
    wire.known().ok_or_else(|| WireError::impossible("source", &value))
}

impl TryFrom<&v1::ClientStatus> for AttachedClient {
    type Error = WireError;

    fn try_from(wire: &v1::ClientStatus) -> Result<Self, WireError> {
        let activity = match wire.activity() {
            v1::ActivityState::Idle => ClientActivity::Idle,
            v1::ActivityState::Busy => ClientActivity::Busy,
            v1::ActivityState::Unspecified => return Err(WireError::impossible("activity", &wire.activity)),
        };
        if !wire.saved_ms.is_finite() {
            return Err(WireError::impossible("saved_ms", &wire.saved_ms));
        }
        let sources =
            wire.sources.iter().map(|known| Ok((source(known.source(), known.source)?, known.layers)));
        let sources = sources.collect::<Result<Vec<(Source, u32)>, WireError>>()?;
        let answered: u64 = sources.iter().map(|(_, layers)| u64::from(*layers)).sum();
        if !sources.is_empty() && answered != u64::from(wire.layers) {
            return Err(WireError::impossible(
                "sources",
                &format_args!("those of {answered} out of {} layers", wire.layers),
            ));
        }
        Ok(Self {
            number: wire.number,
            pid: wire.pid,
            name: wire.name.clone(),
            version: wire.version.clone(),
            activity,
            attached_at_unix_ms: wire.attached_at_unix_ms,
            layers: wire.layers,
            sources,
            observations: wire.observations,
            other_engine: wire.other_engine.clone().map(Into::into),
            worker: said(&wire.worker)
                .map(|program| NamedWorker { program, unused_because: said(&wire.worker_trouble) }),
            explores: wire.explores,
            saved_ms: wire.saved_ms,
            split_calls: wire.split_calls,
        })
    }
}

impl TryFrom<&v1::ServedLayer> for ServedLayer {
    type Error = WireError;

    fn try_from(wire: &v1::ServedLayer) -> Result<Self, WireError> {
        let layer = wire.layer.as_ref().ok_or(WireError::Missing { field: "layer" })?;
        Ok(Self {
            shape: Layer::try_from(layer)?.with_rows(wire.rows)?,
            source: source(wire.source(), wire.source)?,
            provenance: wire.provenance(),
            stale_reason: said(&wire.stale_reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> v1::ClientStatus {
        let of = |source: v1::Source, layers| v1::SourceCount { source: source.into(), layers };
        v1::ClientStatus {
            activity: v1::ActivityState::Busy.into(),
            layers: 3,
            sources: vec![of(v1::Source::Exact, 2), of(v1::Source::None, 1)],
            ..Default::default()
        }
    }

    #[test]
    fn sources_are_counted() {
        let client = AttachedClient::try_from(&status()).unwrap();
        assert_eq!(client.sources, [(Source::Exact, 2), (Source::None, 1)]);
        // A daemon that doesn't tell.
        let silent = v1::ClientStatus { sources: Vec::new(), ..status() };
        assert_eq!(AttachedClient::try_from(&silent).unwrap().sources, []);
    }

    #[test]
    fn nonsense_is_named() {
        type Spoil = fn(&mut v1::ClientStatus);
        let cases: [(Spoil, &str); 4] = [
            (|status| status.activity = 7, "'activity' can't be 7"),
            (|status| status.saved_ms = f64::NAN, "'saved_ms' can't be NaN"),
            (|status| status.sources[0].source = 0, "'source' can't be 0"),
            (|status| status.layers = 4, "those of 3 out of 4 layers"),
        ];
        for (spoil, says) in cases {
            let mut wire = status();
            spoil(&mut wire);
            let error = AttachedClient::try_from(&wire).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let nothing = v1::ServedLayer { rows: 5, source: v1::Source::None.into(), ..Default::default() };
        assert!(ServedLayer::try_from(&nothing).unwrap_err().to_string().contains("'layer' is missing"));
    }
}
