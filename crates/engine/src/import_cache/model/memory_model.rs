//! Predicts a zygote's memory from how long its imports take.

/// Least-squares line through the measurements. Two invented points keep it stable at the
/// beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryModel {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Default for MemoryModel {
    fn default() -> Self {
        let mut model = Self { count: 0.0, x: 0.0, y: 0.0, xx: 0.0, xy: 0.0 };
        model.add(0.0, f64::from(6 << 20));
        model.add(250.0, f64::from(40 << 20));
        model
    }
}

impl MemoryModel {
    pub(crate) fn add(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Bytes predicted for `x` milliseconds.
    pub(crate) fn predict(&self, x: f64) -> f64 {
        let spread = self.count * self.xx - self.x * self.x;
        let slope = (self.count * self.xy - self.x * self.y) / spread;
        (self.y + slope * (self.count * x - self.x)) / self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_foretold_from_those_measured() {
        let mut model = MemoryModel::default();
        for _ in 0..1000 {
            model.add(100.0, f64::from(30 << 20));
            model.add(200.0, f64::from(50 << 20));
        }
        assert!((model.predict(150.0) - f64::from(40 << 20)).abs() < f64::from(1 << 20));
    }
}
