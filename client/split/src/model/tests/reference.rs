//! A decoder block in plain double precision arithmetic, one number at a time.

use mlx_rs::Array;

use super::super::{Geometry, block::Block};

type Rows = Vec<Vec<f64>>;

/// `[M, N]` as rows.
pub(super) fn rows(array: &Array) -> Rows {
    array.eval().unwrap();
    let width = array.dim(-1) as usize;
    let numbers = array.as_slice::<f32>();
    numbers.chunks(width).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
}

fn product(x: &Rows, weight: &Rows) -> Rows {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    x.iter().map(|row| weight.iter().map(|column| dot(row, column)).collect()).collect()
}

fn norm(x: &Rows, weight: &[f64]) -> Rows {
    let normed = |row: &Vec<f64>| {
        let scale = (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + 1e-5).sqrt();
        row.iter().zip(weight).map(|(x, w)| x / scale * w).collect()
    };
    x.iter().map(normed).collect()
}

/// Rotates each head's halves against each other, by the row's position.
fn rotate(x: &mut Rows, heads: usize, head_dim: usize) {
    let half = head_dim / 2;
    for (position, row) in x.iter_mut().enumerate() {
        for head in 0..heads {
            for pair in 0..half {
                let angle = position as f64 * 500_000f64.powf(-(pair as f64) / half as f64);
                let (first, second) = (head * head_dim + pair, head * head_dim + half + pair);
                let (a, b) = (row[first], row[second]);
                row[first] = a * angle.cos() - b * angle.sin();
                row[second] = a * angle.sin() + b * angle.cos();
            }
        }
    }
}

fn attend(q: &Rows, k: &Rows, v: &Rows, geometry: &Geometry) -> Rows {
    let (heads, dim) = (geometry.heads() as usize, geometry.head_dim() as usize);
    let group = heads / geometry.kv_heads() as usize;
    let mut out = vec![vec![0.0; heads * dim]; q.len()];
    for row in 0..q.len() {
        for head in 0..heads {
            let kv = head / group;
            let score = |key: usize| -> f64 {
                (0..dim).map(|i| q[row][head * dim + i] * k[key][kv * dim + i]).sum::<f64>()
                    / (dim as f64).sqrt()
            };
            let weights: Vec<f64> = (0..=row).map(|key| score(key).exp()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..dim {
                out[row][head * dim + i] =
                    (0..=row).map(|key| weights[key] / total * v[key][kv * dim + i]).sum();
            }
        }
    }
    out
}

fn add(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

/// All rows at once, from position 0 on.
pub(super) fn forward(geometry: &Geometry, block: &Block, hidden: &Rows) -> Rows {
    let arrays: Vec<Rows> = block.arrays().map(rows).collect();
    let [attention_norm, ffn_norm, q, k, v, o, gate, up, down] = arrays.as_slice() else {
        panic!("{} arrays", arrays.len())
    };
    let normed = norm(hidden, &attention_norm[0]);
    let (mut queries, mut keys, values) = (product(&normed, q), product(&normed, k), product(&normed, v));
    rotate(&mut queries, geometry.heads() as usize, geometry.head_dim() as usize);
    rotate(&mut keys, geometry.kv_heads() as usize, geometry.head_dim() as usize);
    let hidden = add(hidden, &product(&attend(&queries, &keys, &values, geometry), o));

    let normed = norm(&hidden, &ffn_norm[0]);
    let (gated, upped) = (product(&normed, gate), product(&normed, up));
    let inner: Rows = gated
        .iter()
        .zip(&upped)
        .map(|(g, u)| g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect())
        .collect();
    add(&hidden, &product(&inner, down))
}
