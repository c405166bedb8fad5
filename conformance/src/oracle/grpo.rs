//! Group-relative advantage, docs/maths/statistics.md, docs/maths/advantages.md.

/// The policy for a group with one counted member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singleton {
    /// 0.
    Zero,
    /// mean := 0, std := 1.
    RawReward,
}

/// Parameters of GRPO's advantage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grpo {
    /// Divide by std + eps.
    pub norm_by_std: bool,
    /// Divisor of the variance: n − ddof.
    pub ddof: u32,
    /// Added outside the root.
    pub eps: f64,
    /// Policy for a group of one.
    pub singleton: Singleton,
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Advantage per member; 0 for those not counted.
    pub advantage: Vec<f64>,
    /// Mean of the counted rewards.
    pub mean: f64,
    /// Standard deviation of the counted rewards.
    pub std: f64,
    /// Number of counted members.
    pub counted: usize,
}

impl Grpo {
    /// Advantages of one group; `counted[i]` says whether the sequence takes part. A NaN reward never does.
    pub fn group(&self, rewards: &[f64], counted: &[bool]) -> Group {
        let takes_part = |i: usize| counted[i] && !rewards[i].is_nan();
        let members: Vec<f64> = (0..rewards.len()).filter(|i| takes_part(*i)).map(|i| rewards[i]).collect();
        let n = members.len();
        let mut group = Group { advantage: vec![0.0; rewards.len()], counted: n, ..Group::default() };
        if n == 0 {
            return group;
        }
        let constant = members.iter().all(|r| *r == members[0]);
        group.mean = if constant { members[0] } else { members.iter().sum::<f64>() / n as f64 };
        let squares: f64 = members.iter().map(|r| (r - group.mean).powi(2)).sum();
        group.std = if constant { 0.0 } else { (squares / (n as f64 - f64::from(self.ddof))).sqrt() };
        if n == 1 && self.singleton == Singleton::RawReward {
            (group.mean, group.std) = (0.0, 1.0);
        } else if constant {
            return group;
        }
        for (i, advantage) in group.advantage.iter_mut().enumerate() {
            if takes_part(i) {
                let centred = rewards[i] - group.mean;
                *advantage = if self.norm_by_std { centred / (group.std + self.eps) } else { centred };
            }
        }
        group
    }
}
