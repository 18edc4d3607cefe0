// Sources: megatron/training/arguments.py and the configuration classes of Megatron-LM (August 2026), the example
// scripts beside them, and the launchers they call (torchrun, srun); MindSpeed's feature classes.
#include "io/megatron/megatron_flag_names.hpp"

#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::string_view kUnmodelled =
    "--account-for-embedding-in-pipeline-split "
    "--account-for-loss-in-pipeline-split --cp-comm-type --hierarchical-context-parallel-sizes "
    "--rampup-batch-size --overlap-param-gather-with-optimizer-step "
    "--ddp-num-buckets --window-size --mtp-num-layers "
    "--optimizer-cpu-offload --optimizer-offload-fraction --overlap-cpu-optimizer-d2h-h2d "
    "--fine-grained-activation-offloading --offload-modules --distribute-saved-activations --moe-layer-recompute "
    "--cpu-offloading --cpu-offloading-num-layers --squared-relu --moe-input-jitter-eps "
    "--moe-pad-expert-input-to-capacity --optimizer "
    "--encoder-num-layers --decoder-num-layers --standalone-embedding-stage --no-initialization "
    "--use-precision-aware-optimizer --main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype "
    "--no-tp-comm-bulk-wgrad --no-tp-comm-bulk-dgrad "
    "--no-tp-comm-overlap-ag --no-tp-comm-overlap-rs --tp-comm-overlap-rs-dgrad --no-tp-comm-split-ag "
    "--no-tp-comm-split-rs --tp-comm-bootstrap-backend --no-overlap-p2p-communication "
    "--microbatch-group-size-per-virtual-pipeline-stage --overlap-p2p-communication-warmup-flush "
    "--defer-embedding-wgrad-compute "
    "--overlap-dispatch-backward-with-experts-wgrad --ep-overlap-early-attn-memory-release "
    "--moe-shared-expert-overlap --high-priority-a2a-comm-stream --no-align-param-gather "
    "--ddp-pad-buckets-for-high-nccl-busbw --use-nccl-ub --use-sharp --fsdp-double-buffer "
    "--suggested-communication-unit-size --torch-fsdp2-no-reshard-after-forward --nccl-communicator-config-path "
    "--high-priority-stream-groups --coc-parallel-num --coc-mode --coc-fused-kernel --reuse-fp32-param "
    "--moe-alltoall-overlap-comm --moe-allgather-overlap-comm --fp8-recipe --fp8-dot-product-attention "
    "--fp8-multi-head-attention --fp8-output-proj --first-last-layers-bf16 --num-layers-at-start-in-bf16 "
    "--num-layers-at-end-in-bf16 --fp4-recipe --fp4-param --fp4-param-gather --keep-fp8-transpose-cache "
    "--wgrad-deferral-limit --ddp-reduce-scatter-with-fp32-accumulation --reuse-grad-buf-for-mxfp8-param-ag "
    "--outer-dp-sharding-strategy --megatron-fsdp-grad-comm-dtype --megatron-fsdp-main-grads-dtype "
    "--megatron-fsdp-main-params-dtype --megatron-fsdp-max-pool-double-buffer "
    "--megatron-fsdp-enable-fine-grained-param-gather --window-attn-skip-freq --linear-attention-freq "
    "--hybrid-override-pattern --hybrid-layer-pattern --heterogeneous-layers-config-path --fp32-residual-connection "
    "--moe-latent-size --moe-deepep-num-sms --moe-hybridep-num-sms --moe-flex-dispatcher-num-sms "
    "--moe-router-padding-for-fp8 --moe-router-padding-for-quantization --moe-expert-rank-capacity-factor "
    "--batch-p2p-comm --cpu-offloading-activations --cpu-offloading-weights --yaml-cfg --quick-geglu --openai-gelu ";

constexpr std::string_view kKernels =
    "--no-masked-softmax-fusion --no-gradient-accumulation-fusion --no-bias-gelu-fusion --no-bias-swiglu-fusion "
    "--no-bias-dropout-fusion --no-rope-fusion --no-persist-layer-norm --no-async-tensor-model-parallel-allreduce "
    "--use-mcore-models --use-legacy-models --transformer-impl "
    "--cross-entropy-loss-fusion "
    "--cross-entropy-fusion-impl --moe-grouped-gemm --moe-permute-fusion --moe-use-legacy-grouped-gemm "
    "--empty-unused-memory-level --cuda-graph-warmup-steps --cuda-graph-use-single-mempool "
    "--cuda-graph-retain-backward-graph --fp8-margin --fp8-interval --fp8-amax-history-len --fp8-amax-compute-algo "
    "--no-fp8-wgrad --tp-only-amax-red --fp16-lm-cross-entropy --moe-router-fusion "
    "--ddp-average-in-collective --no-gradient-reduce-div-fusion --disable-symmetric-registration "
    "--use-te-activation-func --use-transformer-engine-op-fuser --fused-residual-rmsnorm "
    "--disable-jit-fuser --use-torch-optimizer-for-cpu-offload "
    "--use-fused-weighted-squared-relu --mla-down-proj-fusion --use-te-rng-tracker --te-rng-tracker --manual-gc "
    "--manual-gc-interval --manual-gc-eval --deterministic-mode "
    "--delay-grad-reduce --no-delay-grad-reduce --pipeline-model-parallel-comm-backend ";

constexpr std::string_view kRun =
    "--lr --min-lr --lr-decay-style --lr-decay-iters --lr-decay-samples --lr-warmup-fraction --lr-warmup-iters "
    "--lr-warmup-samples --lr-warmup-init --lr-wsd-decay-style --lr-wsd-decay-iters --lr-wsd-decay-samples "
    "--train-iters --train-samples --weight-decay --start-weight-decay --end-weight-decay "
    "--weight-decay-incr-style --adam-beta1 --adam-beta2 --adam-eps --sgd-momentum "
    "--seed --data-parallel-random-init --data-path --train-data-path "
    "--valid-data-path --test-data-path --data-args-path --split --vocab-file --merge-file --tokenizer-type "
    "--tokenizer-model --tokenizer-hf-include-special-tokens --tiktoken-pattern --vocab-extra-ids "
    "--data-cache-path --mock-data --save --load --save-interval --save-retain-interval --pretrained-checkpoint "
    "--finetune --eval-interval --eval-iters --skip-train --log-interval --log-throughput --log-params-norm "
    "--log-num-zeros-in-grad --log-progress --log-memory-to-tensorboard --log-timers-to-tensorboard "
    "--log-batch-size-to-tensorboard --log-validation-ppl-to-tensorboard --log-world-size-to-tensorboard "
    "--log-learning-rate-to-tensorboard --log-loss-scale-to-tensorboard --no-log-learnig-rate-to-tensorboard "
    "--no-log-loss-scale-to-tensorboard --tensorboard-dir --tensorboard-log-interval --tensorboard-queue-size "
    "--wandb-project --wandb-exp-name --wandb-entity --wandb-save-dir --timing-log-level --timing-log-option "
    "--barrier-with-L1-time --no-barrier-with-level-1-timing --distributed-backend --exit-duration-in-mins "
    "--exit-interval --exit-signal-handler --no-load-optim --no-load-rng --no-save-optim --no-save-rng "
    "--use-checkpoint-args --no-use-checkpoint-args --exit-on-missing-checkpoint --use-dist-ckpt "
    "--dist-ckpt-format --dist-ckpt-strictness --auto-detect-ckpt-format --no-ckpt-fully-parallel-save "
    "--ckpt-fully-parallel-load --ckpt-fully-parallel-save --ckpt-assume-constant-structure --num-workers "
    ""
    "--loss-scale --initial-loss-scale "
    "--min-loss-scale --loss-scale-window --hysteresis --override-opt_param-scheduler "
    "--use-checkpoint-opt_param-scheduler "
    ""
    "--moe-per-layer-logging "
    "--reset-position-ids --reset-attention-mask --eod-mask-loss --no-create-attention-mask-in-dataloader "
    "--create-attention-mask-in-dataloader --no-mmap-bin-files --enable-one-logger --one-logger-project "
    "--one-logger-run-name --use-cpu-initialization --profile --profile-step-start --profile-step-end "
    "--profile-ranks --use-pytorch-profiler --distributed-timeout-minutes --local-rank "
    "--calculate-per-token-loss --no-check-for-nan-in-loss-and-grad --check-for-nan-in-loss-and-grad "
    "--overwrite-existing --adlr-autoresume --dataloader-type --num-dataset-builder-threads "
    "--defer-npy-index-mmap --result-rejected-tracker-filename --kill-switch-path --wandb --nproc_per_node "
    "--nproc-per-node --nnodes --node_rank --node-rank --master_addr --master-addr --master_port --master-port "
    "--rdzv_id --rdzv-id --rdzv_backend --rdzv-backend --rdzv_endpoint --rdzv-endpoint --max_restarts "
    "--max-restarts --standalone --tee --log_dir --log-dir --module --container-image --container-mounts --output "
    "--ntasks-per-node --distributed-timeout-seconds-after-init --flight-recorder-dump-path "
    "--flight-recorder-trace-buffer-size --rerun-mode --error-injection-rate --error-injection-type "
    "--check-for-spiky-loss --check-weight-hash-across-dp-replicas-interval --gpu-sniff-test-interval "
    "--log-straggler --async-save --ckpt-format --fault-injector-ranks --fault-injector-fault-types "
    "--fault-injector-mtti-seconds --fault-injector-seed --verify-integrity --no-one-logger "
    "--one-logger-async "
    "--decoupled-lr --decoupled-min-lr --head-lr-mult "
    "--apply-wd-to-qk-layernorm --sft --fim-data --fim-rate --short-seq-prob --mask-prob --mid-level-dataset-surplus "
    "--dataloader-fast-cache-load --dataloader-defer-npy-index-mmap --per-split-data-args-path --spec "
    "--use-same-sampling-seed-across-dp-ranks --adlr-autoresume-interval --override-ckpt-iteration --ckpt-step "
    "--ckpt-convert-format --ckpt-convert-save --non-persistent-save-interval --non-persistent-ckpt-type "
    "--log-max-attention-logit --log-energy --log-device-memory-used --logging-level --record-memory-history "
    "--memory-snapshot-path --use-nsys-profiler --nvtx-ranges --train-sync-interval --iterations-to-skip "
    "--moe-router-force-load-balancing --save-optim "
    "--eval-micro-batch-size "
    "--eval-global-batch-size --full-validation --multiple-validation-sets --enable-experimental "
    "--check-for-large-grads --muon-momentum --muon-num-ns-steps --muon-scale-mode --muon-tp-mode ";

constexpr std::string_view kModel =
    "--apply-layernorm-1p --norm-epsilon --layernorm-epsilon --init-method-std --init-method-xavier-uniform "
    "--embedding-init-method-std --rotary-base --rotary-percent --rotary-interleaved "
    "--rotary-seq-len-interpolation-factor --rotary-scaling-factor --use-rope-scaling --rope-scaling-factor "
    "--rope-type --mscale --mscale-all-dim --yarn-original-max-position-embeddings --yarn-beta-fast "
    "--yarn-beta-slow --no-position-embedding --attention-softmax-in-fp32 --apply-query-key-layer-scaling "
    "--no-query-key-layer-scaling --moe-router-load-balancing-type --moe-router-dtype --moe-z-loss-coeff "
    "--moe-router-score-function --moe-router-topk-scaling-factor --moe-router-bias-update-rate "
    "--mtp-loss-scaling-factor --attention-output-gate --qk-clip --qk-clip-alpha --qk-clip-threshold ";

void add(std::vector<MegatronFlagName>& flags, std::string_view names, MegatronFlagUse use) {
  for (std::string& name : split(names, ' ')) {
    if (!name.empty()) flags.push_back({std::move(name), use});
  }
}

}  // namespace

const std::vector<MegatronFlagName>& unused_megatron_flags() {
  static const std::vector<MegatronFlagName> kFlags = [] {
    std::vector<MegatronFlagName> flags;
    add(flags, kUnmodelled, MegatronFlagUse::unmodelled);
    add(flags, kKernels, MegatronFlagUse::kernels);
    add(flags, kRun, MegatronFlagUse::run);
    add(flags, kModel, MegatronFlagUse::model);
    return flags;
  }();
  return kFlags;
}

}  // namespace weft
