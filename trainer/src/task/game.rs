//! Games of two players by self-play: the policy plays both roles. Players move in turn, a move is one
//! character. A game gives a problem to each role: the prompt is what that role sees before the first move,
//! the response is all moves in order and then the end token. A role chose only its own moves; the others are
//! observations.
//!
//! Rewards are zero-sum. Who makes a move that is not allowed loses, and the game is over.

use std::collections::BTreeMap;

use super::{Problem, tictactoe};

/// A game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Game {
    /// Kuhn's poker: cards J, Q and K, one for each player, stakes of 1. `p` passes or folds, `b` bets or
    /// calls 1 more. The value of the game is −1/18 for the first player.
    Kuhn,
    /// TicTacToe: three in a line win 1. A draw if both play perfectly.
    TicTacToe,
}

/// The roles as they begin a prompt: who moves first, and who moves second.
const ROLES: [char; 2] = ['1', '2'];

impl Game {
    /// Finds a game by its name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "kuhn" => Some(Self::Kuhn),
            "tictactoe" => Some(Self::TicTacToe),
            _ => None,
        }
    }

    /// What is dealt, each as likely as the others: the cards of the first and the second player, or nothing.
    fn deals(self) -> &'static [&'static str] {
        match self {
            Self::Kuhn => &["JQ", "JK", "QJ", "QK", "KJ", "KQ"],
            Self::TicTacToe => &[""],
        }
    }

    /// What a role (0 or 1) sees before the first move.
    fn prompt(self, deal: &str, role: usize) -> String {
        ROLES.get(role).copied().into_iter().chain(deal.chars().nth(role)).collect()
    }

    /// The role, 0 or 1, that sees this prompt.
    pub fn role(prompt: &str) -> usize {
        usize::from(prompt.starts_with(ROLES[1]))
    }

    /// Whether a role chose the move at a place, counted from 0.
    fn moves_at(role: usize, place: usize) -> bool {
        place % 2 == role
    }

    /// The moves that are allowed after these; none if the game is over.
    fn allowed(self, moves: &str) -> String {
        match (self, moves) {
            (Self::Kuhn, "" | "p" | "b" | "pb") => "pb".to_owned(),
            (Self::Kuhn, _) => String::new(),
            (Self::TicTacToe, _) => tictactoe::allowed(moves),
        }
    }

    /// Those of them that a best response is searched among: in TicTacToe those of perfect play.
    fn answers(self, moves: &str) -> String {
        match self {
            Self::Kuhn => self.allowed(moves),
            Self::TicTacToe => tictactoe::perfect(moves),
        }
    }

    /// What a lost game costs at most, and a move that is not allowed.
    pub fn stake(self) -> f32 {
        match self {
            Self::Kuhn => 2.0,
            Self::TicTacToe => 1.0,
        }
    }

    /// How its exploitability is measured, in a few words.
    pub fn measure(self) -> &'static str {
        match self {
            Self::Kuhn => "exact, 0 in an equilibrium",
            Self::TicTacToe => "against perfect players, 0 for one of them",
        }
    }

    /// What a role wins by a game that ended by the rules.
    fn payoff(self, deal: &str, moves: &str, role: usize) -> f32 {
        if self == Self::TicTacToe {
            return match (tictactoe::is_won(moves), Self::moves_at(role, moves.len())) {
                (false, _) => 0.0,
                // Who would move next has lost.
                (true, true) => -1.0,
                (true, false) => 1.0,
            };
        }
        let mut ranks = deal.chars().map(|card| "JQK".find(card));
        let first_is_higher = ranks.next() > ranks.next();
        let (won, by) = match moves {
            "bp" => (true, 1.0),
            "pbp" => (false, 1.0),
            "pp" => (first_is_higher, 1.0),
            _ => (first_is_higher, 2.0),
        };
        if won == (role == 0) { by } else { -by }
    }

    /// The place of the first move that is not allowed, if there is one.
    fn foul(self, moves: &str) -> Option<usize> {
        moves.char_indices().find(|(at, c)| !self.allowed(&moves[..*at]).contains(*c)).map(|(at, _)| at)
    }

    /// Whether the game is over after these moves.
    pub fn is_over(self, moves: &str) -> bool {
        self.foul(moves).is_some() || self.allowed(moves).is_empty()
    }

    /// Whether all of these moves were allowed and the game is over.
    pub fn is_by_the_rules(self, moves: &str) -> bool {
        self.foul(moves).is_none() && self.allowed(moves).is_empty()
    }

    /// What the role of a problem wins. Who is to move and ends the response instead loses.
    pub fn reward(self, problem: &Problem, moves: &str) -> f32 {
        let role = Self::role(&problem.prompt);
        if self.is_by_the_rules(moves) {
            return self.payoff(&problem.answer, moves, role);
        }
        let at = self.foul(moves).unwrap_or(moves.len());
        if Self::moves_at(role, at) { -self.stake() } else { self.stake() }
    }

    /// Which tokens of a response a role chose, given the moves in it: not those of the other player, and not
    /// the end token after a game that was over.
    pub fn own(self, role: usize, moves: &str, tokens: usize) -> impl Iterator<Item = bool> {
        let chosen = if self.is_over(moves) { moves.chars().count() } else { tokens };
        (0..tokens).map(move |place| place < chosen && Self::moves_at(role, place))
    }

    /// The problems of both roles in a deal, with a game of uniformly random moves as solution.
    pub fn deal(self, below: &mut dyn FnMut(u64) -> u64) -> [Problem; 2] {
        let deals = self.deals();
        let deal = deals[below(deals.len() as u64) as usize];
        let mut moves = String::new();
        loop {
            let allowed = self.allowed(&moves);
            if allowed.is_empty() {
                break;
            }
            moves.extend(allowed.chars().nth(below(allowed.len() as u64) as usize));
        }
        [0, 1].map(|role| Problem {
            prompt: self.prompt(deal, role),
            solution: moves.clone(),
            answer: deal.to_owned(),
        })
    }

    /// See [`super::Task::alphabet`].
    pub fn alphabet(self) -> Vec<char> {
        match self {
            Self::Kuhn => ROLES.into_iter().chain("JQKpb".chars()).collect(),
            Self::TicTacToe => ROLES.into_iter().chain(tictactoe::SQUARES.chars()).collect(),
        }
    }

    /// See [`super::Task::longest`].
    pub fn longest(self) -> (usize, usize) {
        match self {
            Self::Kuhn => (2, 3),
            Self::TicTacToe => (1, 9),
        }
    }

    /// Every prompt with every game that its role can see, as (prompt, moves); in TicTacToe if the other one
    /// plays perfectly.
    pub fn histories(self) -> Vec<(String, String)> {
        let mut prompts: Vec<String> =
            self.deals().iter().flat_map(|deal| [0, 1].map(|role| self.prompt(deal, role))).collect();
        prompts.sort_unstable();
        prompts.dedup();
        let mut histories = Vec::new();
        for prompt in prompts {
            let role = Self::role(&prompt);
            let mut open = vec![String::new()];
            while let Some(moves) = open.pop() {
                let own = Self::moves_at(role, moves.len());
                let next = if own { self.allowed(&moves) } else { self.answers(&moves) };
                open.extend(next.chars().map(|c| format!("{moves}{c}")));
                if next.is_empty() {
                    histories.push((prompt.clone(), moves));
                }
            }
        }
        histories
    }

    /// How much a policy loses in the mean over both roles to players who know it and play their best
    /// response: half the sum of what these win. It is 0 in an equilibrium, where no player gains by another
    /// strategy. Exact: all games are visited. In TicTacToe, where a policy remembers the order of the moves
    /// and 255,168 games are too many, best responses are those of perfect players: a lower bound, 0 for
    /// perfect play. `policy` gives the probability of the last move of `{prompt}{moves}`; what is missing to
    /// 1 over the allowed moves goes to moves that lose.
    pub fn exploitability(self, policy: &dyn Fn(&str) -> f64) -> f64 {
        0.5 * (self.best_response(0, policy) + self.best_response(1, policy))
    }

    /// What a role wins in the mean by its best response to a policy in the other role.
    pub fn best_response(self, role: usize, policy: &dyn Fn(&str) -> f64) -> f64 {
        // The deals that a player cannot tell apart.
        let mut seen: BTreeMap<String, Vec<(&str, f64)>> = BTreeMap::new();
        for deal in self.deals() {
            seen.entry(self.prompt(deal, role)).or_default().push((deal, 1.0 / self.deals().len() as f64));
        }
        seen.values().map(|deals| self.best(role, "", deals, policy)).sum()
    }

    /// The same after some moves, where the deals are reached with these probabilities.
    fn best(self, role: usize, moves: &str, deals: &[(&str, f64)], policy: &dyn Fn(&str) -> f64) -> f64 {
        let allowed = self.allowed(moves);
        if allowed.is_empty() {
            return deals.iter().map(|(deal, p)| p * f64::from(self.payoff(deal, moves, role))).sum();
        }
        let after = |c: char| format!("{moves}{c}");
        if Self::moves_at(role, moves.len()) {
            let answers = self.answers(moves);
            let values = answers.chars().map(|c| self.best(role, &after(c), deals, policy));
            return values.fold(f64::NEG_INFINITY, f64::max);
        }
        let mut foul: f64 = deals.iter().map(|(_, p)| p).sum();
        let mut value = 0.0;
        for moves in allowed.chars().map(after) {
            let chosen = |deal: &str| policy(&format!("{}{moves}", self.prompt(deal, 1 - role)));
            let reached: Vec<(&str, f64)> = deals.iter().map(|(deal, p)| (*deal, p * chosen(deal))).collect();
            foul -= reached.iter().map(|(_, p)| p).sum::<f64>();
            value += self.best(role, &moves, &reached, policy);
        }
        value + foul * f64::from(self.stake())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An equilibrium of Kuhn's poker for α in 0..=1/3: the first player bluffs with J at α, bets K at 3α,
    /// calls with Q at α + 1/3; the second one bluffs with J and calls with Q at 1/3.
    fn equilibrium(text: &str, alpha: f64) -> f64 {
        let bets = match &text[..text.len() - 1] {
            "1J" => alpha,
            "1K" => 3.0 * alpha,
            "1Qpb" => alpha + 1.0 / 3.0,
            "1Kpb" | "2Kp" | "2Kb" => 1.0,
            "2Jp" | "2Qb" => 1.0 / 3.0,
            _ => 0.0,
        };
        if text.ends_with('b') { bets } else { 1.0 - bets }
    }

    #[test]
    fn an_equilibrium_cannot_be_exploited() {
        for alpha in [0.0, 0.2, 1.0 / 3.0] {
            let policy = |text: &str| equilibrium(text, alpha);
            assert!(Game::Kuhn.exploitability(&policy).abs() < 1e-12, "{alpha}");
            assert!((Game::Kuhn.best_response(0, &policy) + 1.0 / 18.0).abs() < 1e-12);
        }
        assert!(Game::Kuhn.exploitability(&|text| equilibrium(text, 0.5)) > 1e-3);
    }

    /// By hand. Against uniform play the first player wins 3/2 with K (pass and call, or bet), 1/2 with Q
    /// (bet: half of the time a fold wins 1, a call is even), −1/2 with J (bet: (1 − 2)/2): 1/2 in the mean.
    /// The second wins with K 3/2 after a pass (bet), 2 after a bet: 7/4; with Q 1/2 and 0: 1/4; with J
    /// −1/2 and −1: −3/4; 5/12 in the mean.
    #[test]
    fn uniform_play_loses_eleven_twenty_fourths() {
        let uniform = |_: &str| 0.5;
        assert!((Game::Kuhn.best_response(0, &uniform) - 0.5).abs() < 1e-12);
        assert!((Game::Kuhn.best_response(1, &uniform) - 5.0 / 12.0).abs() < 1e-12);
        assert!((Game::Kuhn.exploitability(&uniform) - 11.0 / 24.0).abs() < 1e-12);
        // Who never makes an allowed move always loses the stake.
        assert_eq!(Game::Kuhn.exploitability(&|_| 0.0), 2.0);
    }

    #[test]
    fn who_wins_what() {
        let rewards = |deal: &str, moves: &str| {
            [0, 1].map(|role| {
                let prompt = Game::Kuhn.prompt(deal, role);
                let problem = Problem { prompt, solution: String::new(), answer: deal.to_owned() };
                Game::Kuhn.reward(&problem, moves)
            })
        };
        for (deal, moves, first) in [
            ("KQ", "pp", 1.0),
            ("JQ", "pp", -1.0),
            ("JK", "bp", 1.0),
            ("QK", "bb", -2.0),
            ("KJ", "pbp", -1.0),
            ("QJ", "pbb", 2.0),
            // Moves that are not allowed, and an end instead of a move.
            ("KQ", "J", -2.0),
            ("JQ", "p2", 2.0),
            ("KQ", "pbK", -2.0),
            ("KQ", "", -2.0),
            ("JQ", "b", 2.0),
        ] {
            assert_eq!(rewards(deal, moves), [first, -first], "{deal} {moves}");
        }
    }

    #[test]
    fn a_role_chose_its_own_moves() {
        let own = |role, moves, tokens| Game::Kuhn.own(role, moves, tokens).collect::<Vec<_>>();
        // pbp and the end token of the environment.
        assert_eq!(own(0, "pbp", 4), [true, false, true, false]);
        assert_eq!(own(1, "pbp", 4), [false, true, false, false]);
        assert_eq!(own(0, "pp", 3), [true, false, false]);
        // The second player ended the response instead of moving.
        assert_eq!(own(1, "p", 2), [false, true]);
        // A move that is not allowed ends the game.
        assert_eq!(own(1, "pK", 3), [false, true, false]);
    }

    #[test]
    fn random_games_are_by_the_rules() {
        let mut state = 1_u64;
        let mut below = |n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let [first, second] = Game::Kuhn.deal(&mut below);
            assert!(Game::Kuhn.is_by_the_rules(&first.solution) && first.solution == second.solution);
            assert_eq!((Game::role(&first.prompt), Game::role(&second.prompt)), (0, 1));
            seen.insert(format!("{} {} {}", first.prompt, second.prompt, first.solution));
        }
        assert_eq!(seen.len(), 30, "six deals, five ends");
        assert_eq!(Game::Kuhn.histories().len(), 30, "six prompts, five ends");
    }

    #[test]
    fn perfect_play_loses_nothing_in_tictactoe() {
        let game = Game::TicTacToe;
        let perfect = |text: &str| {
            let (before, last) = text[1..].split_at(text.len() - 2);
            let answers = tictactoe::perfect(before);
            if answers.contains(last) { 1.0 / answers.len() as f64 } else { 0.0 }
        };
        assert!(game.exploitability(&perfect).abs() < 1e-12);
        // Who opens with the first free square, and goes on so, plays a, b and d. The answers e and c make a
        // threat that d does not block: g wins.
        let first_free = |text: &str| {
            let (before, last) = text[1..].split_at(text.len() - 2);
            f64::from(u8::from(tictactoe::allowed(before).starts_with(last)))
        };
        assert_eq!(game.best_response(1, &first_free), 1.0);
        assert_eq!(game.exploitability(&|_| 0.0), 1.0, "no move is allowed");
        // 9,440 against a policy that moves first, 31,040 against one that moves second: counted by a script.
        assert_eq!(game.histories().len(), 40_480);
        let problem =
            |role: usize| Problem { prompt: ["1", "2"][role].into(), ..game.deal(&mut |_| 0)[0].clone() };
        for (moves, first) in [("adbec", 1.0), ("adbegf", -1.0), ("aebcgdfhi", 0.0), ("aa", 1.0), ("", -1.0)]
        {
            assert_eq!([0, 1].map(|role| game.reward(&problem(role), moves)), [first, -first], "{moves}");
        }
    }
}
