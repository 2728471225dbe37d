//! The picture of a ratio, as the built program writes it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod runner;
#[path = "../../sdk/tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;

use runner::run;
use support::{Fake, Script};

const SHAPE: &str = "512x896x4864";

#[test]
fn the_drawing_shows_everything_and_says_what_it_is() {
    let fake = Fake::start(Script::default());
    let drawn = run(&fake.path(), &["ratios", "plot", SHAPE]);
    assert_eq!(drawn.code, 0, "{}", drawn.stderr);
    let svg = &drawn.stdout;
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for text in [
        "512x896x4864 f32 nk: 224 of 512 rows on the secondary unit, ratio 0.438",
        "development pair: two CPU streams stand in for GPU and CPU",
        "Acme Turbo, 16 GiB; conditions: nominal, memory normal, AC",
        "26 of 28 calls count; measured, stale, 2026-01-02 03:04 UTC",
        "MLX 0.32.2 (library 1a2b3c4d) on debian-12 6.1.0",
        "rows on the secondary unit",
        "time of one product, ms",
        "ratio",
        "primary unit's line",
        "secondary unit's line",
        "split, predicted",
        "stock",
        "measured, 95 % interval",
        "cliff: never chosen",
        "224 rows, ",
    ] {
        assert!(text_elements(svg).contains(text), "'{text}' is missing in\n{}", text_elements(svg));
    }
    // Three points with times: an interval's, a filling, a rim. The ring. Two signs of the legend, filling and rim.
    assert_eq!(svg.matches("<circle").count(), 3 * 3 + 1 + 2 * 2);
}

/// What a person reads.
fn text_elements(svg: &str) -> String {
    let texts = svg.split("<text").skip(1).map(|text| {
        let text = text.split_once('>').unwrap().1;
        text.split("</text>").next().unwrap().trim().replace("&apos;", "'").replace("&#39;", "'")
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_same_answer_gives_the_same_bytes() {
    let fake = Fake::start(Script::default());
    let directory = support::directory();
    let draw = |name: &str| {
        let file = directory.path().join(name);
        let run = run(&fake.path(), &["ratios", "plot", SHAPE, "-q", "-o", file.to_str().unwrap()]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
        fs::read(file).unwrap()
    };
    assert_eq!(draw("a.svg"), draw("b.svg"));
    let png = draw("a.png");
    assert_eq!(png, draw("b.png"));
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    // The size is in the first chunk: twice that of the drawing.
    assert_eq!(
        (png[16..20].to_vec(), png[20..24].to_vec()),
        (1920u32.to_be_bytes().to_vec(), 1240u32.to_be_bytes().to_vec())
    );
    // Letters make a picture larger than lines alone do.
    assert!(png.len() > 60_000, "{}", png.len());
}

#[test]
fn mistakes_are_explained() {
    let fake = Fake::start(Script::default());
    let cases: [(&[&str], i32, &str); 4] = [
        (&["ratios", "plot", SHAPE, "-o", "/nowhere/x.pdf"], 2, "neither with .svg nor with .png"),
        (&["ratios", "plot", SHAPE, "-o", "/nowhere/x.svg"], 74, "cannot write '/nowhere/x.svg'"),
        (&["ratios", "plot", SHAPE, "--json"], 2, "name a file with -o"),
        (&["ratios", "plot", "1x2x3"], 65, "nothing to draw of 1x2x3 f32 nk"),
    ];
    for (arguments, code, text) in cases {
        let run = run(&fake.path(), arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(text) && run.stdout.is_empty(), "{arguments:?}: {}", run.stderr);
    }
    let nobody = run(Path::new("/nonexistent/s"), &["ratios", "plot", SHAPE]);
    assert_eq!(nobody.code, 69);
}
