//! The list of columns, and batches whose columns do not fit.

use lockstep::columns::{Column, markdown};
use lockstep::plan::{Calls, Capacity, CreditViews, DeviceRollouts, Plan};
use lockstep::{Credit, Device, Error, Outputs, Recipe, Rollouts, RolloutsBuf, Shape, recipe, synthetic};
use lockstep_core::ragged::{In, Out};

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, says: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(says), "{error}\nexpected {says}");
}

const LOGP: [f32; 4] = [-0.5, -1.0, -0.2, -2.0];

fn rollouts<'a>() -> Rollouts<'a> {
    let columns =
        Rollouts { rewards: Some(&[1.0, 0.0]), logp: Some(&LOGP), ..Rollouts::new(&[0, 2, 4], &[0, 2]) };
    Rollouts { logp_old: Some(&LOGP), logp_rollout: Some(&LOGP), ..columns }
}

const SIZE: Capacity = Capacity { tokens: 4, sequences: 2, groups: 1 };

#[test]
fn the_document_has_the_list() {
    let document = include_str!("../../docs/columns.md");
    assert!(document.ends_with(&markdown()), "docs/columns.md is not `lockstep list --columns`");
}

#[test]
fn names_are_found_again() {
    assert_eq!(Column::named("second"), None);
    for column in Column::ALL {
        assert_eq!(Column::named(column.name()), Some(*column));
        assert!(!column.meaning().is_empty() && !column.from().is_empty());
    }
}

/// Every column is read by a recipe or a choice.
#[test]
fn every_column_is_read_by_a_recipe_or_a_choice() {
    let mut read = Vec::new();
    for name in recipe::names() {
        read.extend(Recipe::named(name).unwrap().reads().iter());
    }
    // Columns of choices that no named recipe makes.
    for chosen in ["ratio.level = \"given\"\n", "reward.weights.difficulty = [0.5, 2.0]\n"] {
        read.extend(Recipe::from_toml(chosen).unwrap().reads().iter());
    }
    let unread: Vec<&Column> = Column::ALL.iter().filter(|column| !read.contains(column)).collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn a_batch_without_offsets_says_so() {
    let error = Rollouts::default().batch().unwrap_err().to_string();
    assert!(error.contains("cu_seqlens"), "{error}");
}

#[test]
fn a_plan_checks_its_offsets() {
    let recipe = Recipe::named("dapo").unwrap();
    for plan in [
        recipe.plan(SIZE, Calls::Both, Outputs::ALL).unwrap(),
        recipe.plan_exactly(SIZE, Calls::Both, Outputs::ALL).unwrap(),
    ] {
        let run = |cu_seqlens, cu_groups| {
            let own = Rollouts { cu_seqlens: Some(cu_seqlens), cu_groups: Some(cu_groups), ..rollouts() };
            plan.run(&Device::cpu(), &own, None)
        };
        assert!(run(&[0, 2, 4], &[0, 2]).unwrap().is_some());
        refused(run(&[0, 9, 4], &[0, 2]), "`cu_seqlens`[2] is 4");
        refused(run(&[0, 2, 9], &[0, 2]), "`cu_seqlens`[2] is 9");
        refused(run(&[1, 2, 4], &[0, 2]), "`cu_seqlens`[0] is 1");
        refused(run(&[0, 2, 4], &[0, 3]), "`cu_groups`[1] is 3");
        refused(run(&[0, 2, 4], &[0, 1]), "`cu_groups`[1] is 1");
    }
}

/// Launches read an advantage for each sequence: of one for each token, those of the first tokens.
#[test]
fn plans_of_sequence_rules_refuse_advantages_of_tokens_as_the_call_does() {
    let means = "[ratio]\nlevel = \"sequence\"\nadvantage = \"sequence_mean\"\n";
    for (recipe, call) in [
        (Recipe::named("opsm").unwrap(), false),
        (Recipe::named("vespo").unwrap(), false),
        (Recipe::named("topr").unwrap(), false),
        (Recipe::from_toml(means).unwrap(), true),
    ] {
        let plan = recipe.plan_exactly(SIZE, Calls::Loss, Outputs::ALL).unwrap();
        let (device, by_token) = (Device::cpu(), Credit::per_token(vec![1.0, -1.0, 1.0, -1.0]));
        refused(plan.run(&device, &rollouts(), Some(&by_token)), "`credit.advantage`: one per sequence");
        // The call on the host takes the means.
        assert_eq!(recipe.loss(&device, &rollouts(), &by_token).is_ok(), call);
        let by_sequence = Credit::per_sequence(vec![1.0, -1.0]);
        assert!(plan.run(&device, &rollouts(), Some(&by_sequence)).unwrap().is_some());
    }
}

/// What stands behind the batch in a column, where nothing may be read.
trait Garbage: Copy {
    const VALUE: Self;
}

macro_rules! garbage {
    ($($own:ty: $value:expr),*) => { $(impl Garbage for $own { const VALUE: $own = $value; })* };
}
garbage!(f32: f32::NAN, f64: f64::NAN, u8: u8::MAX, u32: u32::MAX, u64: u64::MAX);

macro_rules! padding {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// A batch in columns of a larger plan, with garbage behind it in all but the offsets.
        fn padded(batch: &Rollouts<'_>) -> RolloutsBuf {
            let mut padded = batch.padded(&MORE).unwrap();
            $(if let (Shape::Tokens | Shape::Sequences | Shape::Groups, Some(own), Some(to)) =
                (Shape::$shape, batch.$name, &mut padded.$name)
            {
                to[own.len()..].fill(Garbage::VALUE);
            })*
            padded
        }

        /// The batch without its tokens.
        fn emptied(mut batch: RolloutsBuf) -> RolloutsBuf {
            $(match (Shape::$shape, &mut batch.$name) {
                (Shape::Tokens, Some(values)) => values.clear(),
                (Shape::SequenceOffsets, Some(offsets)) => offsets.fill(Default::default()),
                _ => {}
            })*
            batch
        }
    };
}
lockstep::for_each_column!(padding);

const MORE: Capacity = Capacity { tokens: 1000, sequences: 20, groups: 6 };

/// Runs a plan with checks on the CPU, and returns its workspace.
fn checked(plan: &Plan, rollouts: &Rollouts<'_>, credit: Option<&Credit>) -> Result<Vec<u8>, Error> {
    let queue = Device::cpu().queue()?;
    let columns = DeviceRollouts::upload(&queue, rollouts, rollouts.columns())?;
    let credit = credit.map(|credit| CreditViews {
        advantage: In::new(&credit.advantage),
        per_token: credit.per_token,
        loss_mask: credit.loss_mask.as_deref().map(In::new),
        weights: credit.weights.as_deref().map(In::new),
        returns: (!credit.returns.is_empty()).then_some(In::new(&credit.returns)),
    });
    let mut workspace = vec![0_u64; plan.workspace_bytes().div_ceil(8)];
    let into = Out::new(bytemuck::cast_slice_mut(&mut workspace));
    // SAFETY: a CPU's queue, so that the launches are over when the call returns.
    #[allow(unsafe_code)]
    unsafe {
        plan.enqueue_checked(&queue, &columns.views(), credit.as_ref(), (into, None))?;
    }
    Ok(bytemuck::cast_slice(&workspace).to_vec())
}

/// Every recipe, with its calls on the host: the results of a batch in a plan with room for a larger one are
/// those of the two calls.
#[test]
fn plans_take_smaller_batches() {
    for name in recipe::names() {
        let recipe = Recipe::named(name).unwrap();
        let mut batch = synthetic::rollouts(&recipe, 12, 700, 5).unwrap();
        let (credit, loss) = recipe.step(&Device::cpu(), &batch.view()).unwrap();
        let own = batch.batch().unwrap();
        let left = credit.loss_mask.as_ref().map_or(Ok(own), |mask| own.with_mask(mask)).unwrap();
        let counts = left.counts(&Device::cpu()).unwrap();
        batch.counts = Some(vec![counts.tokens, counts.nonempty, counts.sequences]);
        let mut given = credit.clone();
        let length = if credit.per_token { MORE.tokens } else { MORE.sequences };
        given.advantage.resize(length, f32::NAN);
        given.loss_mask.iter_mut().for_each(|mask| mask.resize(MORE.tokens, 1));
        given.weights.iter_mut().for_each(|weights| weights.resize(MORE.tokens, f32::NAN));
        if !given.returns.is_empty() {
            given.returns.resize(MORE.tokens, f32::NAN);
        }
        for (calls, given) in [(Calls::Both, None), (Calls::Advantages, None), (Calls::Loss, Some(&given))] {
            let plan = recipe.plan(MORE, calls, Outputs::ALL).unwrap();
            let bytes = checked(&plan, &padded(&batch.view()).view(), given)
                .unwrap_or_else(|error| panic!("{name}, {calls:?}: {error}"));
            let of = |name: &str, size: usize| {
                plan.slot(name)
                    .map(|slot| &bytes[slot.offset..slot.offset + slot.len.min(size) * slot.element.bytes()])
            };
            if let Some(coef) = of("coef", loss.coef.len()) {
                assert_eq!(bytemuck::cast_slice::<f32, u8>(&loss.coef), coef, "{name}, {calls:?}: coef");
                let total = loss.loss.unwrap().to_ne_bytes();
                assert_eq!(Some(&total[..]), of("loss", 1), "{name}, {calls:?}: loss");
            }
            if let Some(sums) = of("row_sums", usize::MAX) {
                let (own, _) = loss.partials();
                let rows = own.chunks(12).map(bytemuck::cast_slice::<f64, u8>);
                let placed = sums.chunks(8 * MORE.sequences).map(|row| &row[..8 * 12]);
                assert!(!own.is_empty() && rows.eq(placed), "{name}, {calls:?}: row_sums");
            }
            if let (Some(advantage), true) = (of("advantage", credit.advantage.len()), credit.keep.is_empty())
            {
                assert_eq!(
                    bytemuck::cast_slice::<f32, u8>(&credit.advantage),
                    advantage,
                    "{name}, {calls:?}"
                );
            }
        }
    }
}

/// Every recipe, with its calls on the host: the bad value is found in the batch, not behind it, and has the
/// name that the two calls give it.
#[test]
fn a_smaller_batch_with_a_bad_value_names_it() {
    let spoil: [fn(&mut RolloutsBuf) -> Option<&mut f32>; 4] = [
        |batch| batch.logp.as_mut().map(|logp| &mut logp[41]),
        |batch| batch.rewards.as_mut().map(|rewards| &mut rewards[4]),
        |batch| batch.logp_old.as_mut().map(|logp| &mut logp[333]),
        |batch| batch.logp_rollout.as_mut().map(|logp| &mut logp[2]),
    ];
    let mut named = [0; 4];
    for name in recipe::names() {
        let recipe = Recipe::named(name).unwrap();
        for (spoil, named) in spoil.iter().zip(&mut named) {
            let mut batch = synthetic::rollouts(&recipe, 12, 700, 5).unwrap();
            batch.counts = Some(vec![700, 12, 12]);
            let Some(value) = spoil(&mut batch) else { continue };
            *value = f32::INFINITY;
            // A filter may have left the sequence out.
            let said = recipe.step(&Device::cpu(), &batch.view()).err().map(|error| error.to_string());
            let plan = recipe.plan(MORE, Calls::Both, Outputs::ALL).unwrap();
            let of_plan = checked(&plan, &padded(&batch.view()).view(), None).err();
            assert_eq!(of_plan.map(|error| error.to_string()), said, "{name}");
            *named += usize::from(said.is_some());
        }
    }
    assert!(named.iter().all(|recipes| *recipes > 20), "{named:?}");
}

/// Every recipe, with its calls on the host: a batch whose responses are all empty is to a plan what it is to
/// the two calls.
#[test]
fn a_batch_without_tokens_is_a_plan_as_well() {
    let mut lossless = 0;
    for name in recipe::names() {
        let recipe = Recipe::named(name).unwrap();
        let batch = emptied(synthetic::rollouts(&recipe, 12, 700, 5).unwrap());
        let own = batch.batch().unwrap();
        let size = Capacity { tokens: 0, sequences: own.sequences(), groups: own.groups() };
        let plan = recipe.plan_exactly(size, Calls::Both, Outputs::ALL).unwrap();
        let bytes = checked(&plan, &batch.view(), None).map_err(|error| error.to_string());
        match recipe.step(&Device::cpu(), &batch.view()) {
            Err(error) => assert_eq!(bytes, Err(error.to_string()), "{name}"),
            Ok((_, loss)) => {
                let slot = plan.slot("loss").unwrap();
                let of_plan = &bytes.unwrap()[slot.offset..slot.offset + 8];
                assert_eq!(of_plan, loss.loss.unwrap().to_ne_bytes(), "{name}");
                assert!(loss.coef.is_empty() && loss.loss == Some(0.0), "{name}");
                lossless += 1;
            }
        }
    }
    assert!(lossless > 100, "{lossless}");
}

#[test]
fn padding_hides_no_short_column() {
    let capacity = Capacity { tokens: 8, sequences: 4, groups: 2 };
    refused(Rollouts { rewards: Some(&[1.0]), ..rollouts() }.padded(&capacity), "`rewards` has 1 entries");
    refused(Rollouts { rewards: Some(&[1.0; 3]), ..rollouts() }.padded(&capacity), "`rewards` has 3 entries");
}

#[test]
fn selecting_groups_checks_turns_and_steps() {
    let select = |changed: Rollouts<'_>| changed.select(&[0]);
    refused(select(Rollouts { cu_turns: Some(&[0, 2]), ..rollouts() }), "`cu_turns`[1] is 2");
    refused(select(Rollouts { cu_step_tokens: Some(&[0, 3, 2]), ..rollouts() }), "`cu_step_tokens`[2] is 2");
    let steps = Rollouts { step_rewards: Some(&[1.0; 2]), ..rollouts() };
    refused(select(Rollouts { cu_steps: Some(&[0, 3, 2]), ..steps }), "`cu_steps`[2] is 2");
    refused(select(Rollouts { cu_steps: Some(&[0, 2, 9]), ..steps }), "`cu_steps`[2] is 9");
    // A group whose pairs are 2^32.
    let (cu_seqlens, many): (Vec<u32>, u32) = ((0..=65536).collect(), 65536);
    assert_eq!(Rollouts::new(&cu_seqlens, &[0, many]).select(&[0]).unwrap().1.len(), 65536);
}

#[test]
fn columns_in_memory_take_a_batch_of_their_lengths() {
    let queue = Device::cpu().queue().unwrap();
    let mut columns = DeviceRollouts::upload(&queue, &rollouts(), rollouts().columns()).unwrap();
    columns.write(&queue, &rollouts()).unwrap();
    refused(columns.write(&queue, &Rollouts { rewards: Some(&[1.0]), ..rollouts() }), "column rewards");
}
