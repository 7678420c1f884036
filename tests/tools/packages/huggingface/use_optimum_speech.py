# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime"]
# ///
"""Writes down, classifies and embeds sound with Optimum's models of Whisper and wav2vec 2.0, in pipelines too."""

import numpy as np
import torch
from optimum.onnxruntime import (
    ORTModelForAudioClassification,
    ORTModelForAudioFrameClassification,
    ORTModelForAudioXVector,
    ORTModelForCTC,
    ORTModelForSpeechSeq2Seq,
)
from small_models import make_tokenizer
from transformers import (
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForAudioFrameClassification,
    Wav2Vec2ForCTC,
    Wav2Vec2ForSequenceClassification,
    Wav2Vec2ForXVector,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
    pipeline,
)

RATE = 16000
torch.manual_seed(0)
torch.set_printoptions(precision=6)
tokenizer = make_tokenizer()
time = np.arange(2 * RATE) / RATE
SOUNDS = [np.sin(2 * np.pi * f * time * (1 + 0.2 * time)).astype(np.float32) for f in (220, 440, 1500)]

whisper = WhisperForConditionalGeneration(
    WhisperConfig(
        vocab_size=200,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_target_positions=64,
        init_std=0.3,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        decoder_start_token_id=2,
        begin_suppress_tokens=[3],
    )
)
whisper.save_pretrained("whisper")
tokenizer.save_pretrained("whisper")
extractor = WhisperFeatureExtractor()
extractor.save_pretrained("whisper")
features = extractor(SOUNDS, sampling_rate=RATE, return_tensors="pt").input_features
for use_cache in (True, False):
    folder = f"whisper-{use_cache}"
    ORTModelForSpeechSeq2Seq.from_pretrained("whisper", export=True, use_cache=use_cache).save_pretrained(folder)
    model = ORTModelForSpeechSeq2Seq.from_pretrained(folder, use_cache=use_cache)
    print(model(input_features=features, decoder_input_ids=torch.tensor([[2, 9]] * 3)).logits[:, -1, :4])
    for options in ({"num_beams": 1}, {"num_beams": 2}):
        print(tokenizer.batch_decode(model.generate(input_features=features, max_new_tokens=8, **options)))
model = ORTModelForSpeechSeq2Seq.from_pretrained("whisper-True")
speaker = WhisperTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="[SEP]", bos_token="[CLS]")
listen = pipeline("automatic-speech-recognition", model=model, tokenizer=speaker, feature_extractor=extractor)
print(listen(SOUNDS[0], generate_kwargs={"max_new_tokens": 6}))

WAV2VEC = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16, 16),
    "conv_kernel": (10, 8, 4),
    "conv_stride": (5, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "tdnn_dim": (32, 32, 32, 32, 64),
    "xvector_output_dim": 16,
    "use_weighted_layer_sum": True,
}
waves = Wav2Vec2FeatureExtractor(return_attention_mask=False)


def export(model_class, ort_class, **changes):
    """Saves a random model of wav2vec 2.0, and loads it with Optimum."""
    folder = model_class.__name__
    model_class(Wav2Vec2Config(**WAV2VEC, **changes)).save_pretrained(folder)
    waves.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ort_class.from_pretrained(folder, export=True)


inputs = waves(SOUNDS, sampling_rate=RATE, return_tensors="pt")
model = export(Wav2Vec2ForCTC, ORTModelForCTC)
print(model(**inputs).logits[:, 20, :5])
print([text[:60] for text in tokenizer.batch_decode(model(**inputs).logits.argmax(-1))])
model = export(
    Wav2Vec2ForSequenceClassification, ORTModelForAudioClassification, id2label={0: "low", 1: "high", 2: "?"}
)
classify = pipeline("audio-classification", model=model, feature_extractor=waves)
for sound in SOUNDS:
    print([(each["label"], round(each["score"], 5)) for each in classify(sound)])
print(export(Wav2Vec2ForAudioFrameClassification, ORTModelForAudioFrameClassification)(**inputs).logits[:, ::50])
print(export(Wav2Vec2ForXVector, ORTModelForAudioXVector)(**inputs).embeddings[:, :5])
