# /// script
# dependencies = ["librosa==0.11.0", "soundfile==0.13.1", "numpy==2.2.6", "pydub==0.25.1", "scipy==1.16.0"]
# [tool.lambswool]
# memory = "1GB"
# timeout = "120s"
# ///
# Sound, by way of numba: its compiled code calls the vector functions of the C library (libmvec). A tone is written, read,
# resampled and its pitch found. Expected: [22050, 11025, 440, true].
import io
import librosa, numpy as np, soundfile as sf
def handler(event, context):
    t = np.arange(22050) / 22050; out = io.BytesIO(); sf.write(out, np.sin(2 * np.pi * 440 * t), 22050, format="FLAC")
    y, rate = sf.read(io.BytesIO(out.getvalue()))
    half = librosa.resample(y, orig_sr=rate, target_sr=11025)
    spectrum = np.abs(librosa.stft(y)); peak = librosa.fft_frequencies(sr=rate)[spectrum.mean(axis=1).argmax()]
    mfcc = librosa.feature.mfcc(y=y, sr=rate, n_mfcc=5)
    return [rate, len(half), int(round(peak / 10) * 10), mfcc.shape[0] == 5]
