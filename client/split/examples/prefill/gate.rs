//! The policy of a client of fusiond: its gate decides the arm, its local table the rows.

use std::{collections::HashMap, path::Path, time::Instant};

use anyhow::Result;
use fusion_calibrations::{
    engine::Engine,
    gate::ArmSet,
    sample::{FinishTimes, Unit},
    shape::{Layer, Shape},
};
use fusion_client::{
    SocketPath,
    attach::{Attachment, CallGuard, Options, RegionHandle},
};
use fusion_split::{Arm, Call, Policy};

use crate::rows::Rows;

/// Attaches with the layers of a block, and says how many ms that took. A daemon that isn't there is no error: everything is stock then.
pub(crate) fn attach(
    socket: Option<&Path>,
    engine: Engine,
    layers: &[Layer],
    typical_rows: u32,
) -> Result<(Attachment, f64)> {
    let socket = socket.map_or_else(SocketPath::from_environment, SocketPath::new)?;
    let mut options = Options::new(socket, "prefill example", layers.to_vec());
    options.layers.sort_unstable();
    options.layers.dedup();
    options.engine = Some(engine);
    options.typical_rows = typical_rows;
    let start = Instant::now();
    let attachment = Attachment::attach(options);
    Ok((attachment, start.elapsed().as_secs_f64() * 1e3))
}

/// The region called `name`: `blocks` blocks of `layers`. What a stock call takes beyond what the lines say of its layers is never split.
pub(crate) fn region(
    attachment: &Attachment,
    name: &str,
    layers: &[Layer],
    blocks: usize,
    rows: u32,
    stock_call_ms: f64,
) -> RegionHandle {
    let handles = layers.iter().filter_map(|layer| attachment.layer(*layer));
    let parts: Vec<_> = handles.map(|handle| (handle, blocks as u32)).collect();
    let known = parts
        .iter()
        .filter_map(|(handle, times)| Some(attachment.lines(*handle)?.stock_ms(rows) * f64::from(*times)));
    let other_ms = (stock_call_ms - known.sum::<f64>()).max(0.0);
    attachment.region(name, ArmSet::all(), &parts, other_ms)
}

/// Which splits are sampled: every n-th; of each layer both units are waited for first in turn, since only that one's time is exact.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    every: u32,
    splits: u32,
    next_first: HashMap<Layer, Unit>,
}

impl Sampler {
    /// Never, if `every` is 0. Let it share no divisor with the number of layers of a block, so that each has its turn.
    pub(crate) fn new(every: u32) -> Self {
        Self { every, splits: 0, next_first: HashMap::new() }
    }

    /// Whether the next split, one of `layer`, is sampled, and which unit it waits for first.
    pub(crate) fn next(&mut self, layer: Layer) -> Option<Unit> {
        self.splits = self.splits.wrapping_add(1);
        if self.every == 0 || !self.splits.is_multiple_of(self.every) {
            return None;
        }
        let next = self.next_first.entry(layer).or_insert(Unit::Primary);
        let first = *next;
        *next = first.other();
        Some(first)
    }

    /// What a sampled split showed: a unit that is behind has no turn.
    fn shown(&mut self, layer: Layer, times: &FinishTimes) {
        self.next_first.insert(layer, times.next_first_waited());
    }
}

/// Asks the gate for each call, and tells it what became of it.
#[derive(Debug)]
pub(crate) struct Gated<'a> {
    attachment: &'a Attachment,
    region: &'a RegionHandle,
    rows: &'a Rows<'a>,
    sampler: Sampler,
    whole_ffn: bool,
    open: Option<CallGuard<'a>>,
    explored: bool,
}

impl<'a> Gated<'a> {
    pub(crate) fn new(
        attachment: &'a Attachment,
        region: &'a RegionHandle,
        rows: &'a Rows<'a>,
        sampler: Sampler,
        whole_ffn: bool,
    ) -> Self {
        Self { attachment, region, rows, sampler, whole_ffn, open: None, explored: false }
    }

    /// What the gate would run now.
    pub(crate) fn would_run(&self, rows: u32) -> Arm {
        self.region.arm(rows)
    }

    /// Whether the last call was made to learn.
    pub(crate) fn explored(&self) -> bool {
        self.explored
    }
}

impl Policy for Gated<'_> {
    fn arm(&mut self, _: &str, rows: u32) -> Arm {
        if let Some(unfinished) = self.open.take() {
            unfinished.abandon();
        }
        let call = self.region.begin(rows);
        let arm = call.arm();
        self.open = Some(call);
        arm
    }

    fn secondary_rows(&mut self, shape: Shape) -> u32 {
        self.rows.secondary_rows(shape)
    }

    fn ffn_rows(&mut self, layers: [Shape; 3]) -> u32 {
        if self.whole_ffn { self.rows.ffn_rows(layers) } else { 0 }
    }

    fn sample(&mut self, shape: Shape) -> Option<Unit> {
        self.sampler.next(shape.layer())
    }

    fn finished(&mut self, call: &Call<'_>) {
        if let Some(open) = self.open.take() {
            self.explored = open.explores();
            open.end();
        }
        for sampled in call.sampled {
            self.sampler.shown(sampled.layer, &sampled.observation.finish_times);
            if let Some(layer) = self.attachment.layer(sampled.layer) {
                self.attachment.observe(layer, sampled.observation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    #[test]
    fn every_third_split_is_sampled_and_each_unit_waited_for_first_in_turn() {
        let layer = |outputs| Layer::new(896, outputs, WeightFormat::F32, Layout::default()).unwrap();
        let mut sampler = Sampler::new(3);
        let some: Vec<Option<Unit>> = (0..6).map(|_| sampler.next(layer(896))).collect();
        assert_eq!(some, [None, None, Some(Unit::Primary), None, None, Some(Unit::Secondary)]);
        assert_eq!(Sampler::new(0).next(layer(896)), None);
        // Two layers by turns: a turn of all samples together would wait for one unit of each for ever.
        let mut sampler = Sampler::new(1);
        let of_one: Vec<Option<Unit>> =
            (0..4).map(|_| (sampler.next(layer(896)), sampler.next(layer(128))).0).collect();
        assert_eq!(of_one, [Unit::Primary, Unit::Secondary, Unit::Primary, Unit::Secondary].map(Some));
        let behind = FinishTimes { primary_ms: 2.0, secondary_ms: 1.0, first_waited: Unit::Secondary };
        sampler.shown(layer(896), &behind);
        assert_eq!(sampler.next(layer(896)), Some(Unit::Secondary));
    }

    #[test]
    fn without_a_daemon_everything_is_stock_and_every_call_is_ended() {
        let layer = Layer::new(896, 4864, WeightFormat::F32, Layout::default()).unwrap();
        let nobody = SocketPath::new(std::env::temp_dir().join("nobody-listens-here.sock")).unwrap();
        let mut options = Options::new(nobody, "test", vec![layer]);
        options.state_directory = None;
        let attachment = Attachment::attach(options);
        let region = region(&attachment, "test", &[layer], 2, 512, 10.0);
        let rows = Rows::Table(&attachment);
        let mut gated = Gated::new(&attachment, &region, &rows, Sampler::new(0), true);
        let shape = layer.with_rows(512).unwrap();
        for calls in 1..=3 {
            assert_eq!((gated.would_run(512), gated.arm("test", 512)), (Arm::Eager, Arm::Eager));
            assert_eq!((gated.secondary_rows(shape), gated.ffn_rows([shape; 3])), (0, 0));
            assert!(gated.open.is_some());
            let call = Call {
                region: "test",
                rows: 512,
                arm: Arm::Eager,
                total_ms: 10.0,
                run_queue_delay_ms: None,
                sampled: &[],
            };
            gated.finished(&call);
            assert!(gated.open.is_none() && !gated.explored());
            let known = attachment.explain(&region, 512).unwrap();
            let eager = known.arms.iter().find(|arm| arm.arm == Arm::Eager).unwrap();
            assert!(eager.observations <= calls);
        }
    }
}
