#include "sign_sgd.h"

namespace extension {

TANDEM_DEFINE_OPTIMIZER(SignSGD, SignSGDRule)

}  // namespace extension
