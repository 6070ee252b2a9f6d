//! The tensors of one layer, by kind.

use super::Model;

fn name(layer: u64, tensor: &str) -> String {
    format!("blk.{layer}.{tensor}.weight")
}

impl Model {
    /// Norm, query, key, value, output.
    pub fn attention(&mut self, layer: u64, heads: u64, kv_heads: u64, key: u64, value: u64) -> &mut Model {
        let hidden = self.hidden;
        self.vector(&name(layer, "attn_norm"), hidden);
        self.matrix(&name(layer, "attn_q"), hidden, heads * key);
        self.matrix(&name(layer, "attn_k"), hidden, kv_heads * key);
        self.matrix(&name(layer, "attn_v"), hidden, kv_heads * value);
        self.matrix(&name(layer, "attn_output"), heads * value, hidden)
    }

    pub fn qk_norms(&mut self, layer: u64, dim: u64) -> &mut Model {
        self.vector(&name(layer, "attn_q_norm"), dim).vector(&name(layer, "attn_k_norm"), dim)
    }

    pub fn feed_forward(&mut self, layer: u64, size: u64) -> &mut Model {
        let hidden = self.hidden;
        self.vector(&name(layer, "ffn_norm"), hidden);
        self.gated(layer, size)
    }

    pub fn gated(&mut self, layer: u64, size: u64) -> &mut Model {
        let hidden = self.hidden;
        self.matrix(&name(layer, "ffn_gate"), hidden, size).matrix(&name(layer, "ffn_up"), hidden, size);
        self.matrix(&name(layer, "ffn_down"), size, hidden)
    }

    /// Router and experts, without the norm before them.
    pub fn experts(&mut self, layer: u64, count: u64, size: u64) -> &mut Model {
        let hidden = self.hidden;
        self.table(&name(layer, "ffn_gate_inp"), hidden, count);
        self.cube(&name(layer, "ffn_gate_exps"), [hidden, size, count]);
        self.cube(&name(layer, "ffn_up_exps"), [hidden, size, count]);
        self.cube(&name(layer, "ffn_down_exps"), [size, hidden, count])
    }

    pub fn shared_experts(&mut self, layer: u64, size: u64) -> &mut Model {
        let hidden = self.hidden;
        self.matrix(&name(layer, "ffn_gate_shexp"), hidden, size);
        self.matrix(&name(layer, "ffn_up_shexp"), hidden, size);
        self.matrix(&name(layer, "ffn_down_shexp"), size, hidden)
    }

    /// Mamba 1: `rank` of the time step.
    pub fn mamba(&mut self, layer: u64, inner: u64, state: u64, rank: u64) -> &mut Model {
        let hidden = self.hidden;
        self.vector(&name(layer, "attn_norm"), hidden);
        self.matrix(&name(layer, "ssm_in"), hidden, 2 * inner);
        self.table(&name(layer, "ssm_conv1d"), 4, inner).vector(&format!("blk.{layer}.ssm_conv1d.bias"), inner);
        self.matrix(&name(layer, "ssm_x"), inner, rank + 2 * state);
        self.matrix(&name(layer, "ssm_dt"), rank, inner).vector(&format!("blk.{layer}.ssm_dt.bias"), inner);
        self.table(&format!("blk.{layer}.ssm_a"), state, inner).vector(&format!("blk.{layer}.ssm_d"), inner);
        self.matrix(&name(layer, "ssm_out"), inner, hidden)
    }

    /// Mamba 2, with `heads` time steps.
    pub fn mamba2(&mut self, layer: u64, inner: u64, state: u64, groups: u64, heads: u64) -> &mut Model {
        let (hidden, channels) = (self.hidden, inner + 2 * groups * state);
        self.vector(&name(layer, "attn_norm"), hidden);
        self.matrix(&name(layer, "ssm_in"), hidden, inner + channels + heads);
        self.table(&name(layer, "ssm_conv1d"), 4, channels).vector(&format!("blk.{layer}.ssm_conv1d.bias"), channels);
        self.vector(&format!("blk.{layer}.ssm_dt.bias"), heads);
        self.table(&format!("blk.{layer}.ssm_a"), 1, heads).table(&format!("blk.{layer}.ssm_d"), 1, heads);
        self.table(&name(layer, "ssm_norm"), inner / groups, groups);
        self.matrix(&name(layer, "ssm_out"), inner, hidden)
    }

    /// A gated delta net: `groups` key heads and `heads` value heads of `state` elements.
    pub fn delta_net(&mut self, layer: u64, state: u64, groups: u64, heads: u64, fused: bool) -> &mut Model {
        let (hidden, keys, values) = (self.hidden, state * groups, state * heads);
        self.vector(&name(layer, "attn_norm"), hidden);
        self.matrix(&name(layer, "attn_qkv"), hidden, 2 * keys + values).matrix(
            &name(layer, "attn_gate"),
            hidden,
            values,
        );
        self.table(&name(layer, "ssm_conv1d"), 4, 2 * keys + values);
        self.vector(&format!("blk.{layer}.ssm_dt.bias"), heads).vector(&format!("blk.{layer}.ssm_a"), heads);
        if fused {
            self.matrix(&name(layer, "ssm_ba"), hidden, 2 * heads);
        } else {
            self.matrix(&name(layer, "ssm_beta"), hidden, heads).matrix(&name(layer, "ssm_alpha"), hidden, heads);
        }
        self.vector(&name(layer, "ssm_norm"), state);
        self.matrix(&name(layer, "ssm_out"), values, hidden)
    }
}
