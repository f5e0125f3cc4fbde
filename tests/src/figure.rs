//! Figures with a goal, one line each, for a script to read.

use std::fmt;

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// A measured value and its goal: `figure NAME VALUE goal OP NUMBER`.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    value: f64,
    goal: Goal,
}

impl Figure {
    /// A figure; `name` is one word that says the unit, if there is one.
    #[must_use]
    pub fn new(name: &str, value: f64, goal: Goal) -> Self {
        debug_assert!(!name.contains(char::is_whitespace));
        // The sum of no numbers is -0.
        Self { name: name.to_owned(), value: value + 0.0, goal }
    }

    /// Whether the value reaches the goal, in the precision in which it is printed.
    #[must_use]
    pub fn is_met(&self) -> bool {
        let value = (self.value * 1000.0).round() / 1000.0;
        match self.goal {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, goal) = match self.goal {
            Goal::AtLeast(goal) => (">=", goal),
            Goal::AtMost(goal) => ("<=", goal),
        };
        let value = format!("{:.3}", self.value);
        let value = value.trim_end_matches('0').trim_end_matches('.');
        write!(f, "figure {} {value} goal {operator} {goal}", self.name)
    }
}

/// Prints the figures; says whether all goals are met.
#[must_use]
pub fn print(figures: &[Figure]) -> bool {
    for figure in figures {
        println!("{figure}");
    }
    figures.iter().all(Figure::is_met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_one_line_of_words() {
        let figure = Figure::new("dump_10k_tables_vs_pg_dump", 2.6, Goal::AtLeast(2.0));
        assert_eq!(figure.to_string(), "figure dump_10k_tables_vs_pg_dump 2.6 goal >= 2");
        let figure = Figure::new("wrong", 0.0, Goal::AtMost(0.0));
        assert_eq!(figure.to_string(), "figure wrong 0 goal <= 0");
        assert_eq!(
            Figure::new("rows", 1200.0, Goal::AtLeast(1000.0)).to_string(),
            "figure rows 1200 goal >= 1000"
        );
    }

    #[test]
    fn a_goal_is_met_by_its_own_number() {
        assert!(Figure::new("x", 2.0, Goal::AtLeast(2.0)).is_met());
        assert!(Figure::new("x", 2.0, Goal::AtMost(2.0)).is_met());
        assert!(!Figure::new("x", 1.999, Goal::AtLeast(2.0)).is_met());
        assert!(!Figure::new("x", 2.001, Goal::AtMost(2.0)).is_met());
    }
}
