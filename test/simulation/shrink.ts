import type { Plan } from './plan.ts'

/**
 * Returns a plan with as few steps as possible that still fails. Removes steps while `fails`
 * returns true for the remaining plan: first halves, at last single steps.
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
