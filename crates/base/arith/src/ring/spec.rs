//! The shape of a convolution.

/// Largest dimension; its square is the largest size of a tensor. Far above real networks and far
/// below overflow.
const MAX_DIMENSION: usize = 1 << 16;

/// A two-dimensional convolution of one image. A fully connected layer is a 1x1 convolution of a
/// 1x1 image.
///
/// Input `[in_ch, in_h, in_w]`, weights `[out_ch, in_ch / groups, kernel.0, kernel.1]`, output
/// `[out_ch, out_h, out_w]`, all row-major.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConvSpec {
    /// Input channels.
    pub in_ch: usize,
    /// Output channels.
    pub out_ch: usize,
    /// Input rows.
    pub in_h: usize,
    /// Input columns.
    pub in_w: usize,
    /// Kernel (rows, columns).
    pub kernel: (usize, usize),
    /// Stride (rows, columns).
    pub stride: (usize, usize),
    /// Dilation (rows, columns).
    pub dilation: (usize, usize),
    /// Zeros added at (top, left, bottom, right).
    pub pads: [usize; 4],
    /// Number of groups of channels. Output channels read the input channels of their group.
    pub groups: usize,
}

/// An invalid shape.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("impossible convolution ({reason}): {spec:?}")]
pub struct ShapeError {
    /// The reason.
    pub reason: &'static str,
    /// The shape.
    pub spec: Box<ConvSpec>,
}

impl ShapeError {
    pub(super) fn new(reason: &'static str, spec: &ConvSpec) -> Self {
        Self { reason, spec: Box::new(*spec) }
    }
}

impl ConvSpec {
    /// The shape of a fully connected layer.
    pub fn linear(inputs: usize, outputs: usize) -> Self {
        Self {
            in_ch: inputs,
            out_ch: outputs,
            in_h: 1,
            in_w: 1,
            kernel: (1, 1),
            stride: (1, 1),
            dilation: (1, 1),
            pads: [0; 4],
            groups: 1,
        }
    }

    /// # Errors
    /// [`ShapeError`] for a zero or huge dimension, groups that do not divide the channels, or a
    /// kernel larger than the padded input.
    pub fn check(&self) -> Result<(), ShapeError> {
        let (kernel, stride, dilation) = (self.kernel, self.stride, self.dilation);
        let positive = [self.in_ch, self.out_ch, self.in_h, self.in_w, self.groups, kernel.0, kernel.1];
        let steps = [stride.0, stride.1, dilation.0, dilation.1];
        if positive.iter().chain(&steps).any(|&v| v == 0 || v > MAX_DIMENSION) {
            return Err(ShapeError::new("a dimension is zero or too large", self));
        }
        if self.pads.iter().any(|&v| v > MAX_DIMENSION) {
            return Err(ShapeError::new("padding too large", self));
        }
        if !self.in_ch.is_multiple_of(self.groups) || !self.out_ch.is_multiple_of(self.groups) {
            return Err(ShapeError::new("groups do not divide the channels", self));
        }
        let (padded_h, padded_w) = self.padded();
        if self.extent().0 > padded_h || self.extent().1 > padded_w {
            return Err(ShapeError::new("kernel larger than the padded input", self));
        }
        let limit = MAX_DIMENSION as u64 * MAX_DIMENSION as u64;
        let volume =
            |dims: &[usize]| dims.iter().try_fold(1u64, |v, &d| v.checked_mul(d as u64).filter(|&v| v <= limit));
        let volumes = [
            volume(&[self.in_ch, padded_h + stride.0, padded_w + stride.1]),
            volume(&[self.out_ch, self.in_ch / self.groups, kernel.0, kernel.1]),
            volume(&[self.out_ch, self.out_h(), self.out_w()]),
        ];
        if volumes.contains(&None) {
            return Err(ShapeError::new("a tensor is too large", self));
        }
        Ok(())
    }

    /// Rows and columns of the padded input.
    pub fn padded(&self) -> (usize, usize) {
        (self.in_h + self.pads[0] + self.pads[2], self.in_w + self.pads[1] + self.pads[3])
    }

    /// Rows and columns that a dilated kernel covers.
    fn extent(&self) -> (usize, usize) {
        ((self.kernel.0 - 1) * self.dilation.0 + 1, (self.kernel.1 - 1) * self.dilation.1 + 1)
    }

    /// Output rows of a shape that passes [`ConvSpec::check`].
    pub fn out_h(&self) -> usize {
        (self.padded().0 - self.extent().0) / self.stride.0 + 1
    }

    /// Output columns of a shape that passes [`ConvSpec::check`].
    pub fn out_w(&self) -> usize {
        (self.padded().1 - self.extent().1) / self.stride.1 + 1
    }

    /// Number of input elements.
    pub fn in_len(&self) -> usize {
        self.in_ch * self.in_h * self.in_w
    }

    /// Output elements of a shape that passes [`ConvSpec::check`].
    pub fn out_len(&self) -> usize {
        self.out_ch * self.out_h() * self.out_w()
    }

    /// Input channels that one output channel reads.
    pub fn group_in(&self) -> usize {
        self.in_ch / self.groups
    }

    /// Output channels of one group.
    pub fn group_out(&self) -> usize {
        self.out_ch / self.groups
    }

    /// Number of weights.
    pub fn weight_len(&self) -> usize {
        self.out_ch * self.group_in() * self.kernel.0 * self.kernel.1
    }
}
