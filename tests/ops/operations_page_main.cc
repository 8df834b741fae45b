// Prints the table of docs/operations.md.
#include <iostream>

#include <tandem/tests/ops/operations_page.h>

int main() { std::cout << tandem::testing::operations_table(); }
