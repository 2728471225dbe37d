//! How many rows of a layer the secondary unit gets in the split arm.

use std::collections::BTreeMap;

use fusion_calibrations::{
    lines::Lines,
    ratio::Ratio,
    rows::RowRule,
    shape::{Layer, Shape},
};
use fusion_client::attach::Attachment;

/// Who knows.
#[derive(Debug)]
pub(crate) enum Rows<'a> {
    /// Nobody: one ratio for all.
    Ratio(Ratio),
    /// The daemon, through the local table.
    Table(&'a Attachment),
    /// This process measured them.
    Measured(BTreeMap<Layer, u32>),
}

impl Rows<'_> {
    pub(crate) fn secondary_rows(&self, shape: Shape) -> u32 {
        match self {
            Self::Ratio(ratio) => RowRule::apple().secondary_rows(shape, *ratio),
            Self::Table(attachment) => {
                let layer = attachment.layer(shape.layer());
                layer.map_or(0, |layer| attachment.secondary_rows(layer, shape.rows()))
            }
            Self::Measured(rows) => rows.get(&shape.layer()).copied().unwrap_or(0),
        }
    }

    /// The lines that a layer is believed to follow, where anybody knows.
    pub(crate) fn lines(&self, layer: Layer) -> Option<Lines> {
        match self {
            Self::Table(attachment) => attachment.layer(layer).and_then(|layer| attachment.lines(layer)),
            Self::Ratio(_) | Self::Measured(_) => None,
        }
    }

    /// Of a whole feed-forward part.
    pub(crate) fn ffn_rows(&self, layers: [Shape; 3]) -> u32 {
        if let Self::Table(attachment) = self {
            let handles: Option<Vec<_>> =
                layers.iter().map(|shape| attachment.layer(shape.layer())).collect();
            return handles
                .map_or(0, |handles| attachment.secondary_rows_through(&handles, layers[0].rows()));
        }
        RowRule::apple().fewest_rows_through(&layers.map(|shape| (shape, self.secondary_rows(shape))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fusion_calibrations::shape::{Layout, WeightFormat};

    fn shape(inputs: u32, outputs: u32) -> Shape {
        Layer::new(inputs, outputs, WeightFormat::F32, Layout::default()).unwrap().with_rows(512).unwrap()
    }

    #[test]
    fn a_whole_part_gets_what_its_most_modest_layer_wants() {
        let (wide, down) = (shape(896, 4864), shape(4864, 896));
        let rows = |down_rows| {
            let measured = [(wide.layer(), 250), (down.layer(), down_rows)];
            Rows::Measured(measured.into_iter().collect()).ffn_rows([wide, wide, down])
        };
        assert_eq!((rows(240), rows(0)), (240, 0));
        assert_eq!(Rows::Ratio(Ratio::new(0.25).unwrap()).ffn_rows([wide, wide, down]), 128);
        assert_eq!(Rows::Measured(BTreeMap::new()).secondary_rows(wide), 0);
    }
}
