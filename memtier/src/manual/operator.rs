//! For operators: what the plan and the reports say.
//!
//! A configuration is accepted or refused before anything is loaded. Accepted, it prints one line for each thing that takes
//! memory; refused, it prints what was asked, by how much it is over, and levers: settings that free memory, with the value
//! that would do. A lever that is marked `fits` is enough by itself, and those come first. A setting that you locked is never
//! suggested; if it is the one in the way, the report names it.
//!
//! ```text
//! Cannot fit this configuration in the 96 MiB budget.
//!
//!   requested                               MiB
//!     Weights                                 1   4096 bytes
//!     global KV                             128   at least 1024 blocks, 4096 tokens
//!     ...
//!     total                                 129   over by 33 MiB
//!
//!   the largest levers
//!     max_seq_len 4096 -> 2816                 frees      40 MiB   fits
//!     budget 96 MiB -> 129 MiB                 adds       33 MiB   fits
//! ```
//!
//! While serving, [`memory_report`](crate::Engine::memory_report) has, for each tier, what was planned, what is committed,
//! what is in use, and the peak; for each pool how many blocks requests hold; what lives on the device and belongs to no
//! tier; and how often memory was acquired while loading, planning and serving. The number for serving must be that of the planned
//! commits, or zero: an engine that acquires memory while serving is wrong.
//!
//! | Tier | What is in it | Goes |
//! |---|---|---|
//! | `reserve` | context, library reserve, graphs, what others hold | never ours |
//! | `engine-persistent` | workspaces, page tables | with the process |
//! | `model-resident` | weights | with the model |
//! | `forward-scratch` | activations | every step |
//! | `pooled` | KV blocks | every request |
//! | `host-pinned` | page-locked buffers | with the process |
//!
//! With a device and a host, the first layers may run on the device and the rest on the host (`--gpu-layers N`, or `auto` for as
//! many as the device's budget holds with one sequence's KV). There is a plan and a report for each of the two, and a refusal
//! names the one that is too small.
//!
//! A whole model is served from an NVIDIA GPU with `--device cuda:N`, by a build with the feature `cuda`: `--budget` is then what may be
//! taken of the device. Matrices of few bits stay so there: a weight of Q4_0, Q4_1 or Q4_K takes 5 bits, of Q5_0 5.5, of Q6_K 7, of Q8_0 8.5.
//! Others, and all with `--weights bf16`, are bf16. What is multiplied unpacked, in passes of many tokens, is in the line
//! of the forward scratch. Each recorded pass of `--graphs N` is priced at 2 MiB. The CUDA context is beside the budget.
//!
//! The library reserve is what drivers and libraries take for themselves. It is assumed on a machine that was never seen,
//! measured across a start, and planned with at the next one (`--reserve-file FILE`, [`reserve`](crate::reserve)): the plan's line
//! says which of the three it is. A start that measures more than a tenth off says so; a file that is damaged is named and ignored.
//!
//! On a GPU cuBLASLt multiplies the rows of prompts where it is installed (the CUDA toolkit has it, and the Python wheel `nvidia-cublas`; its folder
//! on `LD_LIBRARY_PATH`, or its file in `MEMTIER_CUBLASLT`): small matrices in passes of 129 rows and more, those of 6 Mi elements (12 MiB) and
//! more from 33 rows on, which is where it was seen to be faster. Its algorithms are chosen and loaded before
//! anything is served; what it works in is part of the workspace's line, its own memory part of the library reserve, which is remembered by its
//! version. Without it memtier's kernels do everything, and so they do what it refuses, in passes that are recorded too: the demo's last lines say how
//! many products it had, how many it refused, or why it had none.
//! `--no-cublaslt` leaves it out, and so does `--batch-invariant`, since it sums few rows in another order than many.
//!
//! `--kv-type` stores keys and values in fewer bytes, on the CPU and on a GPU: [which types there are](super::kv_types), and what each costs.
//!
//! What is done when memory gets short while serving, and the flags and the file for it, is in
//! [memory policy](super::memory_policy).
