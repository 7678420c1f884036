# /// script
# dependencies = ["optimum-onnx", "transformers", "torch", "onnxruntime"]
# ///
"""Classifies texts and words, answers questions, fills masks and embeds with Optimum's models of BERT, in pipelines."""

import torch
from optimum.onnxruntime import (
    ORTModelForFeatureExtraction,
    ORTModelForMaskedLM,
    ORTModelForMultipleChoice,
    ORTModelForQuestionAnswering,
    ORTModelForSequenceClassification,
    ORTModelForTokenClassification,
)
from small_models import LINES, bert_config, make_tokenizer
from transformers import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    pipeline,
)

torch.manual_seed(0)
torch.set_printoptions(precision=6)
tokenizer = make_tokenizer()


def export(model_class, ort_class, **changes):
    """Saves a random model, and loads it with Optimum, which writes its ONNX file."""
    folder = model_class.__name__
    model_class(bert_config(**changes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ort_class.from_pretrained(folder, export=True).save_pretrained(f"{folder}-onnx")
    return ort_class.from_pretrained(f"{folder}-onnx")


labels = dict(enumerate(["good", "bad", "neither"]))
model = export(BertForSequenceClassification, ORTModelForSequenceClassification, id2label=labels)
classify = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
for answer in classify(LINES, batch_size=2):
    print([(each["label"], round(each["score"], 5)) for each in answer])
inputs = tokenizer(LINES, padding=True, return_tensors="pt")
print(model(**inputs).logits)
print(model(**tokenizer(LINES, padding=True, return_tensors="np")).logits)
with torch.inference_mode():
    print(model(**inputs).logits.argmax(-1))
model.use_io_binding = True
print(model(**inputs).logits)

model = export(
    BertForTokenClassification, ORTModelForTokenClassification, id2label=dict(enumerate(["O", "B-P", "I-P"]))
)
tag = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple")
for answer in tag(LINES):
    print([(each["entity_group"], each["word"], each["start"], round(float(each["score"]), 5)) for each in answer])

model = export(BertForQuestionAnswering, ORTModelForQuestionAnswering)
answer = pipeline("question-answering", model=model, tokenizer=tokenizer)
print(answer(question="Who sells shells?", context=" ".join(LINES[2:]), max_seq_len=48, doc_stride=16))

model = export(BertForMaskedLM, ORTModelForMaskedLM)
for guess in pipeline("fill-mask", model=model, tokenizer=tokenizer)("The quick [MASK] jumps."):
    print(guess["token_str"], round(guess["score"], 5))

model = export(BertModel, ORTModelForFeatureExtraction)
embed = pipeline("feature-extraction", model=model, tokenizer=tokenizer)
for line in LINES:
    print([round(x, 5) for x in embed(line)[0][0][:6]])
print(model.device, model.providers, model.input_names)

model = export(BertForMultipleChoice, ORTModelForMultipleChoice)
pairs = tokenizer([LINES[0]] * 2, LINES[1:3], padding=True, return_tensors="pt")
print(model(**{name: value.unsqueeze(0) for name, value in pairs.items()}).logits)
