/* Instructions on bits: logic, shifts, bit fields; and instructions that move values. */
#include "tests/cuda/ptx/alu.h"

static int logic(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	uint64_t *d = at(b, w, in->d);
	uint64_t keep = in->type == T_PRED		? 1
			: ptx_type_bytes(in->type) == 2 ? UINT16_MAX
			: ptx_type_bytes(in->type) == 4 ? UINT32_MAX
							: UINT64_MAX;

	if (in->base == P_AND)
		EACH(mask, d[l] = x[l] & y[l] & keep);
	else if (in->base == P_OR)
		EACH(mask, d[l] = (x[l] | y[l]) & keep);
	else
		EACH(mask, d[l] = (x[l] ^ y[l]) & keep);
	return 1;
}

/* Shifts. A count beyond the width gives 0, or copies of the sign for signed types. */
static int shift(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	uint64_t *d = at(b, w, in->d);
	uint32_t bits = 8 * ptx_type_bytes(in->type);
	uint64_t keep = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
	int is_signed = in->type == T_S16 || in->type == T_S32 || in->type == T_S64;

	EACH(mask, {
		uint32_t n = (uint32_t)y[l];
		uint64_t v = x[l] & keep;

		if (in->base == P_SHL) {
			d[l] = n >= bits ? 0 : v << n & keep;
		} else if (is_signed) {
			int64_t s = (int64_t)(v << (64 - bits)) >> (64 - bits);

			d[l] = (uint64_t)(s >> (n >= bits ? bits - 1 : n)) & keep;
		} else {
			d[l] = n >= bits ? 0 : v >> n;
		}
	});
	return 1;
}

static int funnel(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *z = at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);

	EACH(mask, {
		uint64_t v = (uint32_t)x[l] | y[l] << 32;
		uint32_t n = (uint32_t)z[l];

		n = in->mods & M_WRAP ? n & 31 : n > 32 ? 32 : n;
		d[l] = (uint32_t)(in->mods & M_LEFT ? v >> (32 - n) : v >> n);
	});
	return 1;
}

static int permute(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *z = at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);

	EACH(mask, {
		uint64_t v = (uint32_t)x[l] | y[l] << 32;
		uint32_t r = 0;

		for (int i = 0; i < 4; i++) {
			uint32_t sel = (uint32_t)z[l] >> 4 * i & 15;
			uint32_t byte = (uint32_t)(v >> 8 * (sel & 7)) & 255;

			if (sel & 8)
				byte = byte & 128 ? 255 : 0;
			r |= byte << 8 * i;
		}
		d[l] = r;
	});
	return 1;
}

static int field(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *z = at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);
	int bits = 8 * (int)ptx_type_bytes(in->type);

	if (in->base == P_BFI) {
		const uint64_t *e = at(b, w, in->e);

		/* inserts `e` bits of `a` into `b` at bit `c` */
		EACH(mask, {
			int pos = (int)(z[l] & 255), len = (int)(e[l] & 255);
			uint64_t ones = len >= 64 ? UINT64_MAX : (1ull << len) - 1;
			uint64_t place = pos >= bits ? 0 : ones << pos;

			d[l] = (y[l] & ~place) | (pos >= bits ? 0 : x[l] << pos & place);
			if (bits == 32)
				d[l] = (uint32_t)d[l];
		});
		return 1;
	}
	EACH(mask, {
		int pos = (int)(y[l] & 255), len = (int)(z[l] & 255);
		int is_signed = in->type == T_S32 || in->type == T_S64, last = pos + len - 1;
		uint64_t r = 0, sign;

		if (last > bits - 1)
			last = bits - 1;
		sign = is_signed && len ? x[l] >> last & 1 : 0;
		for (int i = 0; i < bits; i++)
			r |= (i < len && pos + i < bits ? x[l] >> (pos + i) & 1 : sign) << i;
		d[l] = r;
	});
	return 1;
}

static int lop3(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *z = at(b, w, in->c);
	const uint64_t *table = at(b, w, in->e);
	uint64_t *d = at(b, w, in->d);

	EACH(mask, {
		uint32_t r = 0;

		for (int i = 0; i < 32; i++) {
			uint32_t k = (uint32_t)((x[l] >> i & 1) << 2 | (y[l] >> i & 1) << 1 |
						(z[l] >> i & 1));

			r |= ((uint32_t)table[l] >> k & 1) << i;
		}
		d[l] = r;
	});
	return 1;
}

int alu_bits(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	switch (in->base) {
	case P_SHL:
	case P_SHR:
		return shift(b, w, in, mask);
	case P_SHF:
		return funnel(b, w, in, mask);
	case P_PRMT:
		return permute(b, w, in, mask);
	case P_BFE:
	case P_BFI:
		return field(b, w, in, mask);
	case P_LOP3:
		return lop3(b, w, in, mask);
	default:
		return logic(b, w, in, mask);
	}
}

/* ---- moving ---------------------------------------------------------------------------------- */

static int select_one(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *p = at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);
	uint64_t keep = ptx_type_bytes(in->type) == 8	? UINT64_MAX
			: ptx_type_bytes(in->type) == 4 ? UINT32_MAX
							: UINT16_MAX;

	EACH(mask, d[l] = (p[l] ? x[l] : y[l]) & keep);
	return 1;
}

int alu_move(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = in->a == NOWHERE ? NULL : at(b, w, in->a);
	uint64_t *d = in->d == NOWHERE ? NULL : at(b, w, in->d);
	unsigned int bytes = ptx_type_bytes(in->type);

	if (in->base == P_SELP)
		return select_one(b, w, in, mask);
	if (in->base == P_PACK) {
		unsigned int part = 8 * bytes / in->vec;
		uint64_t r[LANES] = {0};

		for (int i = in->vec - 1; i >= 0; i--) {
			const uint64_t *v = at(b, w, in->v[i]);
			uint64_t keep = (1ull << part) - 1;

			EACH(mask, r[l] = r[l] << part | (v[l] & keep));
		}
		EACH(mask, d[l] = r[l]);
		return 1;
	}
	if (in->base == P_UNPACK) {
		unsigned int part = 8 * bytes / in->vec;
		uint64_t r[LANES];

		EACH(mask, r[l] = x[l]);
		for (int i = 0; i < in->vec; i++)
			if (in->v[i] != NOWHERE) {
				uint64_t *v = at(b, w, in->v[i]);

				EACH(mask,
				     v[l] = r[l] >> part * (unsigned int)i & ((1ull << part) - 1));
			}
		return 1;
	}
	if (in->type == T_PRED)
		EACH(mask, d[l] = x[l] != 0);
	else if (bytes == 8)
		EACH(mask, d[l] = x[l]);
	else if (bytes == 4)
		EACH(mask, d[l] = (uint32_t)x[l]);
	else
		EACH(mask, d[l] = (uint16_t)x[l]);
	return 1;
}
