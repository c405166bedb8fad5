//! Row lengths by structure.

/// A packed batch's row lengths.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name, for labels.
    pub name: &'static str,
    /// The bug that it catches.
    pub catches: &'static str,
    /// Length of each row.
    pub lengths: Vec<u32>,
}

impl Shape {
    /// Offsets, `[R+1]`.
    pub fn offsets(&self) -> Vec<u32> {
        offsets_of(self.lengths.iter().copied())
    }
}

/// Offsets of rows of these lengths.
pub fn offsets_of(lengths: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut offsets = vec![0];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + length);
    }
    offsets
}

/// All small shapes: cheap enough for every variant of every op.
pub fn small() -> Vec<Shape> {
    vec![
        Shape {
            name: "edges",
            catches: "a tail of a block (32), of a column cycle (128), of an unroll; rows without elements \
                      at both ends and in the middle; a row of one",
            lengths: vec![0, 1, 31, 32, 33, 0, 0, 127, 128, 129, 1, 255, 256, 257, 0],
        },
        Shape {
            name: "starts",
            catches: "loads that assume an aligned row: 33·i mod 32 = i, so every start offset 0..31 occurs",
            lengths: vec![33; 32],
        },
        Shape {
            name: "pages",
            catches: "a block loop that is left one early or late after many rounds",
            lengths: vec![4095, 3, 4096, 4097],
        },
        Shape { name: "one", catches: "a batch of one element", lengths: vec![1] },
        Shape { name: "nothing", catches: "a batch without any element", lengths: vec![0, 0] },
    ]
}

/// More work than one task of the thread pool, in rows of very different lengths.
pub fn large() -> Shape {
    Shape {
        name: "large",
        catches: "rows split over threads; a row longer than 2^16; column counts past any small unroll",
        lengths: vec![65_537, 0, 1, 20_000, 17, 16_384, 3, 9_999, 128],
    }
}

/// The small shapes and the large one.
pub fn all() -> Vec<Shape> {
    small().into_iter().chain([large()]).collect()
}

/// Finds a shape by name.
pub fn named(name: &str) -> Shape {
    match all().into_iter().find(|shape| shape.name == name) {
        Some(shape) => shape,
        None => panic!("no shape is called {name}"),
    }
}
