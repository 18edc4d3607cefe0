#!/bin/bash
TP=8
PP=4
HIDDEN=8192
options=" \
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
    --num-layers-per-virtual-pipeline-stage 5 \
    --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --num-layers 80 --hidden-size ${HIDDEN} --ffn-hidden-size 28672 --num-attention-heads 64 \
    --group-query-attention --num-query-groups 8 \
    --seq-length 4096 --max-position-embeddings 4096 \
    --position-embedding-type rope --swiglu --normalization RMSNorm --norm-epsilon 1e-5 \
    --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000 \
    --micro-batch-size=1 --global-batch-size=1024 --bf16 --use-flash-attn --recompute-activations \
    --ddp-bucket-size 40000000 --tp-comm-overlap --no-masked-softmax-fusion --lr 1.5e-4 "
run_cmd="python -u /workspace/megatron-lm/pretrain_gpt.py $@ ${options}"
srun -l --container-image image "${run_cmd}" > log 2>&1
