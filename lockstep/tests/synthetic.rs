//! Made-up rollouts.

use lockstep::columns::Column;
use lockstep::{Device, Recipe, recipe, synthetic};

#[test]
fn sizes_are_kept() {
    let recipe = Recipe::named("grpo").unwrap();
    for (sequences, tokens) in [(1, 1), (2, 2), (3, 50), (5, 5), (8, 100), (9, 1000), (64, 70)] {
        let rollouts = synthetic::rollouts(&recipe, sequences, tokens, 3).unwrap();
        let batch = rollouts.batch().unwrap();
        assert_eq!((batch.sequences(), batch.tokens()), (sequences, tokens));
        assert!(sequences < 4 || batch.groups() >= 2);
        let groups = rollouts.cu_groups.clone().unwrap();
        let rewards = rollouts.rewards.clone().unwrap();
        for pair in groups.windows(2) {
            let own = &rewards[pair[0] as usize..pair[1] as usize];
            assert!(own.len() == 1 || (own.contains(&1.0) && own.contains(&0.0)), "{own:?}");
        }
        assert_eq!(rollouts, synthetic::rollouts(&recipe, sequences, tokens, 3).unwrap());
        assert!(tokens < 50 || rollouts != synthetic::rollouts(&recipe, sequences, tokens, 4).unwrap());
    }
    assert!(synthetic::rollouts(&recipe, 0, 5, 0).is_err());
    assert!(synthetic::rollouts(&recipe, 5, 4, 0).is_err());
}

#[test]
fn every_column_can_be_made_and_is_right() {
    let all = synthetic::columns(Column::ALL.iter().copied(), 11, 90, 5).unwrap();
    for column in Column::ALL {
        assert!(all.view().length(*column).is_some(), "{}", column.name());
    }
    all.view().check().unwrap();
}

#[test]
fn every_name_takes_a_step_on_its_own() {
    for name in recipe::names() {
        let recipe = Recipe::named(name).unwrap();
        let rollouts = synthetic::rollouts(&recipe, 8, 64, 1).unwrap();
        let (credit, loss) =
            recipe.step(&Device::cpu(), &rollouts.view()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(credit.advantage.iter().chain(&loss.coef).all(|x| x.is_finite()), "{name}");
    }
}
