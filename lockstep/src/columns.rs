//! The columns of a batch of rollouts: the single list from which [`Rollouts`](crate::Rollouts), the
//! safetensors reader and writer, and docs/columns.md are made.

/// Calls `$with!` with the columns, as lines `name: type, Shape, "meaning and unit", "source";`.
#[macro_export]
// For rustfmt alone, which would move the second lines of strings: a `rustfmt::skip` that the compiler sees
// hides the macro from imports in this crate.
#[cfg_attr(any(), rustfmt::skip)]
macro_rules! for_each_column {
    ($with:ident) => {
        $with! {
            cu_seqlens: u32, SequenceOffsets, "sequence s holds tokens `cu_seqlens[s]..cu_seqlens[s+1]`",
                "batch";
            cu_groups: u32, GroupOffsets,
                "group g holds sequences `cu_groups[g]..cu_groups[g+1]`: the responses to one prompt",
                "batch";
            loss_mask: u8, Tokens,
                "0: the token is masked out (prompt, tool output, padding); if absent, no token is masked",
                "batch";
            tokens: u32, Tokens, "token ids", "tokenizer";
            logp: f32, Tokens, "log-probability under the policy that is trained, in nats",
                "trainer, every update";
            logp_old: f32, Tokens, "log-probability under the same policy when the update began",
                "trainer, once per batch";
            logp_rollout: f32, Tokens, "log-probability that the engine reported when it sampled",
                "inference engine";
            logp_ref: f32, Tokens, "log-probability under the frozen reference", "reference model";
            logp_latest: f32, Tokens,
                "log-probability under the newest policy, where logp_old is an older one that sampled the \
                 data (ReMix)", "trainer";
            logp_previous: f32, Tokens,
                "log-probability under the policy before the last update (ReMix's convex KL)", "trainer";
            divergence: f32, Tokens,
                "divergence of the policy from logp_old's at the token, over the top k of the vocabulary, at \
                 least 0 (DPPO)", "trainer, from the logits";
            log_ratio: f32, Tokens, "log-ratio computed elsewhere, for ratio.level given", "caller";
            entropy: f32, Tokens, "entropy of the policy's distribution at the token, in nats",
                "trainer, from the logits";
            sum_p_squared: f32, Tokens, "sum over the vocabulary of squared probabilities",
                "trainer, from the logits";
            score_norm: f32, Tokens, "squared norm of the gradient of the token's log-probability", "trainer";
            rewards: f32, Sequences, "reward of each response; NaN: no score", "environment";
            token_rewards: f32, Tokens, "reward of each token", "environment or reward model";
            reward_components: f32, Components,
                "K rewards of each response, one array of S after the other; NaN: no score", "environment";
            reward_weights: f32, Kinds, "weight of each of the K rewards", "configuration";
            valid: u8, Sequences, "0: the response is left out of its group's statistics", "caller";
            baseline: f32, Groups,
                "baseline of each prompt: the greedy response's reward (ReMax), a prior (V0.5), a tracked \
                 value (MSSR)", "caller";
            baseline_weights: f32, Sequences,
                "weight of each response in its group's baseline (VCPO), from ops::vcpo_weights",
                "trainer";
            outcome_weights: f32, Sequences,
                "weight of each response in the values of its prefix tree (TEMPO); absent: 1", "caller";
            flawed: u8, Sequences, "not 0: the answer is right, its reasoning flawed (FAPO)", "judge";
            reference: u32, Groups,
                "position in its group of the response that the others were compared with (BRPO)", "judge";
            answer_class: u32, Sequences, "class of the answer, from ops::reward::majority (EVOL-RL)",
                "caller";
            similarity: f32, Pairs,
                "similarity of each pair of responses of a group, row by row, group after group (EVOL-RL)",
                "embedding model";
            roles: u32, Sequences, "role that played the response (SPIRAL)", "environment";
            role_values: f64, Roles,
                "moving average of each role's reward, as the last batch left it; absent: 0, as before the \
                 first", "state";
            values: f32, Tokens, "value of each token by the critic that is trained", "critic, every update";
            values_old: f32, Tokens, "value of each token when the update began", "critic, once per batch";
            terminated: u8, Sequences,
                "not 0: the response ended on its own; given with `truncated` and `bootstrap`, or not at all",
                "environment";
            truncated: u8, Sequences,
                "not 0: the response was cut off before its end; not beside `terminated`", "environment";
            bootstrap: f32, Sequences, "value of what would follow a truncated response", "critic";
            cu_turns: u32, TurnOffsets,
                "turn k holds tokens `cu_turns[k]..cu_turns[k+1]`; each sequence starts a turn (MARS)",
                "environment";
            turn_rewards: f32, Turns, "reward of each turn", "environment";
            turn_roles: u32, Turns, "role that played each turn", "environment";
            cu_steps: u32, StepsOfSequences, "sequence s holds steps `cu_steps[s]..cu_steps[s+1]` (UI-S1)",
                "environment";
            cu_step_tokens: u32, StepOffsets, "step k holds tokens `cu_step_tokens[k]..cu_step_tokens[k+1]`",
                "environment";
            step_rewards: f32, Steps, "reward of each step", "environment";
            step_matches: u8, Steps, "not 0: the step is the expert's", "environment";
            counts: u64, Three,
                "live tokens, sequences with a live token and sequences of the whole batch, where this is a \
                 part of it; absent: of this batch", "trainer";
            seed: u64, One, "random seed: a different one for every call", "caller";
            step: u64, One, "number of the training step, from 0", "trainer";
            difficulty: f32, Sequences, "how hard the response's prompt is, 0 to 1 (ROLL's weights)",
                "data set";
        }
    };
}

/// The type of a column's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 8 bits, a flag.
    U8,
    /// 32 bits, an index, offset or id.
    U32,
    /// 64 bits, a count.
    U64,
    /// binary32.
    F32,
    /// binary64.
    F64,
}

/// A type of column elements.
pub trait ColumnElement: Copy + PartialEq + std::fmt::Debug + 'static {
    /// The element type.
    const ELEMENT: Element;
}

macro_rules! elements {
    ($($own:ty: $element:ident, $name:literal, $bytes:literal;)*) => {
        $(impl ColumnElement for $own {
            const ELEMENT: Element = Element::$element;
        })*

        impl Element {
            /// The name of the type: `u8`, `f32`, ….
            pub fn name(self) -> &'static str {
                match self { $(Element::$element => $name),* }
            }

            /// The size of an element in bytes.
            pub fn bytes(self) -> usize {
                match self { $(Element::$element => $bytes),* }
            }
        }
    };
}
elements! {
    u8: U8, "u8", 1;
    u32: U32, "u32", 4;
    u64: U64, "u64", 8;
    f32: F32, "f32", 4;
    f64: F64, "f64", 8;
}

/// The length of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// N tokens.
    Tokens,
    /// S sequences.
    Sequences,
    /// G groups.
    Groups,
    /// S + 1, over tokens.
    SequenceOffsets,
    /// G + 1, over sequences.
    GroupOffsets,
    /// K rewards of S sequences.
    Components,
    /// K rewards.
    Kinds,
    /// Σ n² over groups of n.
    Pairs,
    /// P roles.
    Roles,
    /// T turns.
    Turns,
    /// T + 1, over tokens.
    TurnOffsets,
    /// U steps.
    Steps,
    /// S + 1, over steps.
    StepsOfSequences,
    /// U + 1, over tokens.
    StepOffsets,
    /// One number.
    One,
    /// Three numbers.
    Three,
}

impl Shape {
    /// Whether the column holds offsets.
    pub fn is_offsets(self) -> bool {
        use Shape::{GroupOffsets, SequenceOffsets, StepOffsets, StepsOfSequences, TurnOffsets};
        matches!(self, GroupOffsets | SequenceOffsets | StepOffsets | StepsOfSequences | TurnOffsets)
    }

    /// The shape in the notation of the documents: `[N]`, `[S]`, ….
    pub fn name(self) -> &'static str {
        match self {
            Shape::Tokens => "[N]",
            Shape::Sequences => "[S]",
            Shape::Groups => "[G]",
            Shape::SequenceOffsets | Shape::StepsOfSequences => "[S+1]",
            Shape::GroupOffsets => "[G+1]",
            Shape::Components => "[K·S]",
            Shape::Kinds => "[K]",
            Shape::Pairs => "[Σn²]",
            Shape::Roles => "[P]",
            Shape::Turns => "[T]",
            Shape::TurnOffsets => "[T+1]",
            Shape::Steps => "[U]",
            Shape::StepOffsets => "[U+1]",
            Shape::One => "[1]",
            Shape::Three => "[3]",
        }
    }
}

macro_rules! columns {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// A column of a batch of rollouts; its name is that of the field of [`Rollouts`](crate::Rollouts).
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $(#[doc = $meaning] $name,)*
        }

        impl Column {
            /// All columns, in the order of the list.
            pub const ALL: &'static [Column] = &[$(Column::$name),*];

            /// The name of the column, which is the same in files, Python and C.
            pub fn name(self) -> &'static str {
                match self { $(Column::$name => stringify!($name)),* }
            }

            /// The type of the column's elements.
            pub fn element(self) -> Element {
                match self { $(Column::$name => <$own as ColumnElement>::ELEMENT),* }
            }

            /// The length of the column.
            pub fn shape(self) -> Shape {
                match self { $(Column::$name => Shape::$shape),* }
            }

            /// The meaning of the column, with its unit.
            pub fn meaning(self) -> &'static str {
                match self { $(Column::$name => $meaning),* }
            }

            /// Where the column usually comes from.
            pub fn from(self) -> &'static str {
                match self { $(Column::$name => $from),* }
            }
        }
    };
}
for_each_column!(columns);

impl Column {
    /// The column with this name.
    pub fn named(name: &str) -> Option<Column> {
        Column::ALL.iter().copied().find(|column| column.name() == name)
    }

    const fn bit(self) -> u64 {
        1 << self as u32
    }
}

const _: () = assert!(Column::ALL.len() <= 64, "a set of columns is a word");

/// A set of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(u64);

impl Columns {
    /// The empty set.
    pub const NONE: Columns = Columns(0);

    /// The set of these columns.
    pub const fn of(columns: &[Column]) -> Columns {
        let (mut bits, mut i) = (0, 0);
        while i < columns.len() {
            bits |= columns[i].bit();
            i += 1;
        }
        Columns(bits)
    }

    /// Adds a column.
    pub fn insert(&mut self, column: Column) {
        self.0 |= column.bit();
    }

    /// Returns the set with one more column if `there`.
    pub(crate) const fn with(self, column: Column, there: bool) -> Columns {
        Columns(self.0 | (column.bit() * there as u64))
    }

    /// Whether the set has this column.
    pub fn contains(self, column: Column) -> bool {
        self.0 & column.bit() != 0
    }

    /// Set difference: the columns of `self` that are not in `other`.
    pub fn without(self, other: Columns) -> Columns {
        Columns(self.0 & !other.0)
    }

    /// Intersection: the columns in both sets.
    pub fn shared(self, other: Columns) -> Columns {
        Columns(self.0 & other.0)
    }

    /// Union: the columns in either set.
    pub fn and(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the columns, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Column> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let first = *Column::ALL.get(bits.trailing_zeros() as usize)?;
            bits &= bits - 1;
            Some(first)
        })
    }
}

/// Formats the list as the Markdown table of docs/columns.md.
pub fn markdown() -> String {
    let mut out = String::from("| column | type | shape | what it is | source |\n|---|---|---|---|---|\n");
    for column in Column::ALL {
        let (name, element, shape) = (column.name(), column.element().name(), column.shape().name());
        out += &format!("| `{name}` | {element} | {shape} | {} | {} |\n", column.meaning(), column.from());
    }
    out
}
