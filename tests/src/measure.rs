//! What a run costs: time, and memory at its highest.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use crate::wait::poll;
use crate::{Finished, Running};

/// Longer than any run that is measured; the harness's own limit comes first.
const LIMIT: Duration = Duration::from_secs(3600);

/// A program that has ended, and what it cost.
pub struct Measured {
    /// How it ended and what it wrote.
    pub finished: Finished,
    /// Wall time.
    pub seconds: f64,
    /// Peak resident memory of the process itself, without the programs it runs, in MB (10^6).
    ///
    /// The kernel's own account of a process that has ended (`ru_maxrss`) would count those.
    pub peak_rss: f64,
}

/// Runs a program that `start` starts to its end.
#[track_caller]
pub fn measure(start: impl FnOnce() -> Running) -> Measured {
    let begin = Instant::now();
    let mut running = start();
    let status = format!("/proc/{}/status", running.id());
    let mut peak_rss = 0.0;
    poll(LIMIT, || {
        // The high-water mark only grows: of the peak nothing is missed but the last moment's.
        if let Some(kilobytes) = fs::read_to_string(&status).ok().as_deref().and_then(high_water) {
            peak_rss = kilobytes * 1024.0 / 1e6;
        }
        running.has_ended().then_some(())
    });
    let seconds = begin.elapsed().as_secs_f64();
    Measured { finished: running.wait(), seconds, peak_rss }
}

fn high_water(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Values of repeated runs.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<f64>);

impl Series {
    /// Adds the value of a run.
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; of an even number of runs the mean of the two in the middle.
    ///
    /// # Panics
    ///
    /// If there was no run.
    #[must_use]
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        }
    }

    fn sorted(&self) -> Vec<f64> {
        assert!(!self.0.is_empty(), "a series of no runs");
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// As cells of a table: median, minimum, maximum.
impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sorted = self.sorted();
        let (least, most) = (sorted[0], sorted[sorted.len() - 1]);
        write!(f, "{:.3} | {least:.3} | {most:.3}", self.median())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_shows_its_middle_and_its_ends() {
        let mut series = Series::default();
        [3.0, 1.0, 2.0].into_iter().for_each(|value| series.add(value));
        assert_eq!(series.to_string(), "2.000 | 1.000 | 3.000");
        series.add(10.0);
        assert!((series.median() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn the_high_water_mark_is_read_from_a_process_status() {
        assert_eq!(high_water("Name:\tx\nVmHWM:\t    5120 kB\nVmRSS:\t 9 kB\n"), Some(5120.0));
        assert_eq!(high_water("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
