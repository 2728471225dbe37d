//! Row buckets: calls of about as many rows share a region.

use std::fmt;

/// A quarter octave of row counts: within one, time per row is taken as constant (attention's quadratic part moves it by a few per
/// cent at most, and both arms alike).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket(u8);

impl Bucket {
    /// How many there are.
    pub const COUNT: usize = 128;

    /// The bucket of a row count; 0 rows are in the bucket of 1.
    pub fn of(rows: u32) -> Self {
        let rows = rows.max(1);
        let octave = rows.ilog2();
        let quarter = if octave >= 2 { (rows >> (octave - 2)) & 3 } else { (rows << (2 - octave)) & 3 };
        // At most 31 * 4 + 3.
        Self((octave * 4 + quarter) as u8)
    }

    /// The bucket with this number, if there is one.
    pub fn from_index(index: u8) -> Option<Self> {
        (usize::from(index) < Self::COUNT).then_some(Self(index))
    }

    /// Its number, in the order of the rows.
    pub fn index(self) -> u8 {
        self.0
    }

    /// The smallest row count in it.
    pub fn first_rows(self) -> u32 {
        let (octave, quarter) = (u32::from(self.0 / 4), u32::from(self.0 % 4));
        ((u64::from(4 + quarter) << octave).div_ceil(4)) as u32
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+ rows", self.first_rows())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_of_octaves() {
        assert_eq!(Bucket::of(2048), Bucket::of(2559));
        assert_ne!(Bucket::of(2047), Bucket::of(2048));
        assert_ne!(Bucket::of(2559), Bucket::of(2560));
        assert_eq!(Bucket::of(2600).first_rows(), 2560);
        assert_eq!(Bucket::of(0), Bucket::of(1));
        assert_eq!(usize::from(Bucket::of(u32::MAX).index()), Bucket::COUNT - 1);
        for rows in 4..5000 {
            let bucket = Bucket::of(rows);
            assert!(bucket.first_rows() <= rows && Bucket::of(bucket.first_rows()) == bucket, "{rows}");
        }
    }
}
