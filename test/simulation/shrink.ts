import type { Plan } from './plan.ts'

/**
 * A plan of the fewest steps that still fails: takes steps away, first halves of them and at last single ones, for as long as
 * `fails` says that the rest does.
 */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>): Promise<Plan> {
  let { steps } = plan
  let size = Math.ceil(steps.length / 2)
  while (size > 0) {
    let isSmaller = false
    for (let from = 0; from < steps.length;) {
      const fewer = [...steps.slice(0, from), ...steps.slice(from + size)]
      if (await fails({ ...plan, steps: fewer })) {
        steps = fewer
        isSmaller = true
      } else from += size
    }
    if (!isSmaller || size > 1) size = size === 1 ? 0 : Math.ceil(size / 2)
  }
  return { ...plan, steps }
}
