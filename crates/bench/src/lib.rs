//! Workloads, peers, side-by-side runs and reports.
