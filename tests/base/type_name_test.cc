#include <tandem/base/type_name.h>
#include <tandem/tests/support/test.h>

namespace tandem { namespace {

struct Plain {};
template <class T>
struct Template {};

TEST(TypeName, NamespacesAndEnclosingScopesAreLeftOut) {
  struct Local {};
  struct Outer {
    struct Inner {};
  };
  EXPECT_EQ(type_name(typeid(Plain)), "Plain");
  EXPECT_EQ(type_name(typeid(Local)), "Local");
  EXPECT_EQ(type_name(typeid(Outer::Inner)), "Inner");
  EXPECT_EQ(type_name(typeid(int)), "int");
}

TEST(TypeName, TemplateArgumentsAreKept) {
  EXPECT_EQ(type_name(typeid(Template<int>)), "Template<int>");
  EXPECT_EQ(type_name(typeid(Template<std::vector<int>>)).rfind("Template<std::", 0), 0u);
}

}}  // namespace tandem
