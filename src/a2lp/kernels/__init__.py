"""What is compiled and shared: the compiler with its cache, SIMD products, linear algebra, elementary functions."""
