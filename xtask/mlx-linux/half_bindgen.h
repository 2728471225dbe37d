/* The half-precision types of mlx-c's headers, spelt for clang: lets bindgen emit the fp16 and bf16 accessors. */
typedef _Float16 float16_t;
typedef __bf16 bfloat16_t;
#define HAS_FLOAT16
#define HAS_BFLOAT16
