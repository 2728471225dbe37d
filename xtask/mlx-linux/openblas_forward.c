/* Defines the BLAS and LAPACK names that libmlx.so imports, each a jump to its `scipy_` twin in OpenBLAS.
 * libmlxc.so is loaded before libmlx.so's own (reference) BLAS, so these win the symbol lookup. */
#if defined(__x86_64__)
#define JMP(f) "jmp scipy_" #f "@PLT\n"
#elif defined(__aarch64__)
#define JMP(f) "b scipy_" #f "\n"
#endif
#define FWD(f) __asm__(".text\n.globl " #f "\n.type " #f ",@function\n" #f ":\n" JMP(f) ".size " #f ",.-" #f "\n");
FWD(cblas_sgemm) FWD(cblas_dgemm) FWD(cblas_cgemm)
FWD(cgeev_) FWD(cgesdd_) FWD(cheevd_) FWD(dgeev_) FWD(dgeqrf_) FWD(dgesdd_) FWD(dgetrf_) FWD(dgetri_)
FWD(dorgqr_) FWD(dpotrf_) FWD(dsyevd_) FWD(dtrtri_) FWD(sgeev_) FWD(sgeqrf_) FWD(sgesdd_) FWD(sgetrf_)
FWD(sgetri_) FWD(sorgqr_) FWD(spotrf_) FWD(ssyevd_) FWD(strtri_)
