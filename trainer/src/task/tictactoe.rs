//! The rules of TicTacToe, and perfect play. Squares are `a` to `i`, row by row.

/// The squares.
pub(super) const SQUARES: &str = "abcdefghi";

/// The rows, columns and diagonals, as sets of squares.
const LINES: [u16; 8] = [0o7, 0o70, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124];

const FULL: u16 = 0o777;

/// The squares of the player to move, and those of the other one. Moves are allowed ones.
fn board(moves: &str) -> [u16; 2] {
    let mut board = [0; 2];
    for (turn, at) in moves.chars().filter_map(|c| SQUARES.find(c)).enumerate() {
        board[turn % 2] |= 1 << at;
    }
    if moves.len().is_multiple_of(2) { board } else { [board[1], board[0]] }
}

fn has_line(squares: u16) -> bool {
    LINES.iter().any(|line| squares & line == *line)
}

/// Whether the player who moved last has a line.
pub(super) fn is_won(moves: &str) -> bool {
    has_line(board(moves)[1])
}

/// What the player to move gets if both play perfectly: 1, 0 or −1.
fn value([own, other]: [u16; 2]) -> i8 {
    if has_line(other) {
        return -1;
    }
    let free = (0..9).map(|at| 1 << at).filter(|square| (own | other) & square == 0);
    free.map(|square| -value([other, own | square])).max().unwrap_or(0)
}

/// The moves that are allowed.
pub(super) fn allowed(moves: &str) -> String {
    let [own, other] = board(moves);
    if has_line(other) || own | other == FULL {
        return String::new();
    }
    SQUARES.chars().filter(|c| !moves.contains(*c)).collect()
}

/// Those of them that lose nothing against any player.
pub(super) fn perfect(moves: &str) -> String {
    let best = value(board(moves));
    let keeps = |c: &char| -value(board(&format!("{moves}{c}"))) == best;
    allowed(moves).chars().filter(keeps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_moves() {
        // Every opening draws. A corner must be answered in the middle, the middle in a corner.
        assert_eq!(perfect(""), SQUARES);
        assert_eq!(perfect("a"), "e");
        assert_eq!(perfect("e"), "acgi");
        // a and b are taken: c wins at once, and prevents the loss.
        assert_eq!(perfect("adbe"), "c");
        assert_eq!(perfect("aeb"), "c");
        assert!(is_won("adbec") && allowed("adbec").is_empty());
        // A draw: no line on the full board.
        assert!(allowed("aebcgdfhi").is_empty() && !is_won("aebcgdfhi"));
    }
}
